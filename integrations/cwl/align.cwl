cwlVersion: v1.2
class: CommandLineTool
label: FASTQ to sorted reads with duplicates marked, as BAM
doc: The indexes of the reference are its secondary files; `godwit index` writes them.

requirements:
  ResourceRequirement:
    coresMin: $(inputs.threads)

hints:
  SoftwareRequirement:
    packages:
      godwit: {}

baseCommand: [godwit, align]
arguments: [--out, ., --threads, $(runtime.cores)]

inputs:
  reference:
    type: File
    inputBinding: { prefix: --reference }
    secondaryFiles:
      - .fai
      - .amb
      - .ann
      - .pac
      - .bwt?
      - .sa?
      - .bwt.2bit.64?
  reads:
    doc: R1 and R2 of one lane, or one file of reads without mates
    type: File[]
    inputBinding: { prefix: --reads }
  sample:
    type: string
    inputBinding: { prefix: --sample }
  read_group:
    type: string?
    inputBinding: { prefix: --read-group }
  optical_distance:
    type: int?
    inputBinding: { prefix: --optical-distance }
  threads:
    type: int
    default: 1

outputs:
  bam:
    type: File
    secondaryFiles: [.bai]
    outputBinding: { glob: $(inputs.sample).bam }
  duplicates:
    type: File
    outputBinding: { glob: $(inputs.sample).duplicates.txt }
  summary:
    type: File
    outputBinding: { glob: run.json }
