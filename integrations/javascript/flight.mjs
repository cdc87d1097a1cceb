// A client of Arrow Flight in a page: messages of Arrow come as messages of gRPC, and apache-arrow reads them as one stream.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
import { tableFromIPC } from "apache-arrow";

const definition = loader.loadSync(fileURLToPath(new URL("flight.proto", import.meta.url)), { keepCase: true, longs: Number });
const { FlightService } = grpc.loadPackageDefinition(definition).arrow.flight.protocol;
// A batch may be as large as a server likes; gRPC takes 4 MiB where nothing is said.
const LARGEST_MESSAGE = 1 << 30;

/** A server: `grpc+tcp://HOST:PORT`, or `grpc+tls://HOST:PORT` with the certificates to trust in the file `ca`. */
export function connect(url, { token, ca } = {}) {
  const { protocol, host } = new URL(url.replace(/^grpc\+/, ""));
  const trust = protocol === "tls:" ? grpc.credentials.createSsl(ca && readFileSync(ca)) : grpc.credentials.createInsecure();
  const service = new FlightService(host, trust, { "grpc.max_receive_message_length": LARGEST_MESSAGE });
  const shown = new grpc.Metadata();
  if (token) shown.set("authorization", `Bearer ${token}`);
  return { service, shown, close: () => service.close() };
}

/** Paths of all datasets. */
export async function datasets({ service, shown }) {
  const found = [];
  for await (const info of service.ListFlights({}, shown)) found.push(info.flight_descriptor.path.join("/"));
  return found;
}

/** Rows of a dataset as a table of Arrow; `regions` (chr1:1000-2000, 1-based and closed) and `columns` are arrays. */
export async function read(client, dataset, { regions, columns } = {}) {
  const command = Buffer.from(JSON.stringify({ dataset, regions, columns }));
  const info = await new Promise((resolve, reject) => {
    client.service.GetFlightInfo({ type: "CMD", cmd: command }, client.shown, (error, found) => (error ? reject(error) : resolve(found)));
  });
  const tables = [];
  for (const { ticket } of info.endpoint) {
    const pieces = [];
    for await (const message of client.service.DoGet(ticket, client.shown)) {
      if (message.data_header?.length) pieces.push(...encapsulated(message));
    }
    tables.push(tableFromIPC(Buffer.concat(pieces)));
  }
  return tables.reduce((all, table) => all.concat(table));
}

/** A message as it stands in a stream of Arrow IPC: a mark, the length of its head, the head up to a multiple of 8 bytes, its body. */
function encapsulated({ data_header: head, data_body: body }) {
  const padding = Buffer.alloc(-head.length & 7);
  const start = Buffer.alloc(8, 0xff);
  start.writeInt32LE(head.length + padding.length, 4);
  return [start, head, padding, body ?? Buffer.alloc(0)];
}
