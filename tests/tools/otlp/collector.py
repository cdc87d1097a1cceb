"""A collector of spans: receives OTLP/HTTP as JSON, parses it with the protobuf messages of OpenTelemetry, and writes the spans to a file.

Arguments: the file to append to, and the required value of the header `x-key`. Prints the port on which it listens. Each span is a line of
JSON; an invalid request is a line with the error.
"""

import base64
import http.server
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

# OTLP encodes these as hexadecimal digits; the JSON of Protocol Buffers encodes bytes as base64.
IDS = ("traceId", "spanId", "parentSpanId")


def attribute_values(attributes):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


def parse_spans(body):
    told = json.loads(body)
    for span in (span for of in told["resourceSpans"] for scope in of["scopeSpans"] for span in scope["spans"]):
        for name in set(IDS) & set(span):
            span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    request = json_format.ParseDict(told, ExportTraceServiceRequest())
    for of in request.resource_spans:
        for scope in of.scope_spans:
            for span in scope.spans:
                assert len(span.trace_id) == 16 and len(span.span_id) == 8
                assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
                yield {
                    "service": attribute_values(of.resource.attributes)["service.name"],
                    "trace": span.trace_id.hex(),
                    "span": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "name": span.name,
                    "kind": span.kind,
                    "facts": attribute_values(span.attributes),
                    "failed": span.status.code == 2,
                }


class CollectorHandler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        with open(path, "a") as out:
            try:
                assert self.path == "/v1/traces" and self.headers["content-type"] == "application/json", self.path
                assert self.headers["x-key"] == key, self.headers
                for span in parse_spans(body):
                    print(json.dumps(span), file=out)
            except Exception as error:
                print(f"wrong: {error!r}", file=out)
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


path, key = sys.argv[1:]
server = http.server.HTTPServer(("127.0.0.1", 0), CollectorHandler)
print(server.server_port, flush=True)
server.serve_forever()
