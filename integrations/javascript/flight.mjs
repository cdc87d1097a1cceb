// A client of Arrow Flight: it receives Arrow messages in gRPC messages, and apache-arrow decodes them as one stream.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
import { tableFromIPC } from "apache-arrow";

const definition = loader.loadSync(fileURLToPath(new URL("flight.proto", import.meta.url)), { keepCase: true, longs: Number });
const { FlightService } = grpc.loadPackageDefinition(definition).arrow.flight.protocol;
// The server decides the size of a batch; gRPC's default limit is 4 MiB.
const LARGEST_MESSAGE = 1 << 30;

/** Connects to a server: `grpc+tcp://HOST:PORT`, or `grpc+tls://HOST:PORT` with the certificates to trust in the file `ca`. */
export function connect(url, { token, ca } = {}) {
  const { protocol, host } = new URL(url.replace(/^grpc\+/, ""));
  const trust = protocol === "tls:" ? grpc.credentials.createSsl(ca && readFileSync(ca)) : grpc.credentials.createInsecure();
  const service = new FlightService(host, trust, { "grpc.max_receive_message_length": LARGEST_MESSAGE });
  const shown = new grpc.Metadata();
  if (token) shown.set("authorization", `Bearer ${token}`);
  return { service, shown, close: () => service.close() };
}

/** Returns the paths of all datasets. */
export async function datasets({ service, shown }) {
  const found = [];
  for await (const info of service.ListFlights({}, shown)) found.push(info.flight_descriptor.path.join("/"));
  return found;
}

/** Returns the rows of a dataset as an Arrow table; `regions` (chr1:1000-2000, 1-based and closed) and `columns` are arrays. */
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

/** Returns an encapsulated message of Arrow IPC: continuation marker, length of the header, header padded to 8 bytes, body. */
function encapsulated({ data_header: head, data_body: body }) {
  const padding = Buffer.alloc(-head.length & 7);
  const start = Buffer.alloc(8, 0xff);
  start.writeInt32LE(head.length + padding.length, 4);
  return [start, head, padding, body ?? Buffer.alloc(0)];
}
