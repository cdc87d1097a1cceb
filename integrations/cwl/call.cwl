cwlVersion: v1.2
class: CommandLineTool
label: Variants of sorted reads

requirements:
  # The header of the variants names the reference: by its name here, not by a temporary path.
  InitialWorkDirRequirement:
    listing: [$(inputs.reference)]
  ResourceRequirement:
    coresMin: $(inputs.threads)

hints:
  SoftwareRequirement:
    packages:
      godwit: {}

baseCommand: [godwit, call]
arguments: [--out, $(inputs.sample).vcf.gz, --threads, $(runtime.cores)]

inputs:
  reference:
    type: File
    inputBinding: { prefix: --reference, valueFrom: $(self.basename) }
    secondaryFiles: [.fai]
  reads:
    type: File
    inputBinding: { prefix: --reads }
    secondaryFiles: [.bai?, .crai?]
  sample:
    doc: Name of the output
    type: string
  caller:
    type: string?
    inputBinding: { prefix: --caller }
  threads:
    type: int
    default: 1

outputs:
  vcf:
    type: File
    secondaryFiles: [.tbi]
    outputBinding: { glob: $(inputs.sample).vcf.gz }
