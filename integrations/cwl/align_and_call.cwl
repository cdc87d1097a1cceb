cwlVersion: v1.2
class: Workflow
label: A sample from FASTQ to variants

inputs:
  reference:
    type: File
    secondaryFiles:
      - .fai
      - .amb
      - .ann
      - .pac
      - .bwt?
      - .sa?
      - .bwt.2bit.64?
  reads: File[]
  sample: string
  optical_distance: int?
  threads: { type: int, default: 1 }

steps:
  align:
    run: align.cwl
    in: { reference: reference, reads: reads, sample: sample, optical_distance: optical_distance, threads: threads }
    out: [bam]
  call:
    run: call.cwl
    in: { reference: reference, reads: align/bam, sample: sample, threads: threads }
    out: [vcf]

outputs:
  bam:
    type: File
    outputSource: align/bam
  vcf:
    type: File
    outputSource: call/vcf
