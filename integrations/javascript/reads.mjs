// Reads of a region: node reads.mjs URL DATASET REGION [TOKEN [CA.pem]]
import { connect, datasets, read } from "./flight.mjs";

const [url, dataset, region, token, ca] = process.argv.slice(2);
const client = connect(url, { token, ca });
console.error((await datasets(client)).join("\n"));
const reads = await read(client, dataset, { regions: [region], columns: ["name", "flags", "contig", "position", "cigar"] });
for (const read of reads) console.log([read.name, read.flags, read.contig, read.position + 1, read.cigar ?? "*"].join("\t"));
client.close();
