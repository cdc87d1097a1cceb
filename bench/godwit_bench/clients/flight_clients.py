"""Standard clients of a `godwit serve`, without godwit code: flight_clients.py ADDRESS [TOKEN].

Jobs: `flight` reads a dataset without SQL by pyarrow; `info` calls GetFlightInfo for a dataset several times; `ticket` reads the rows of a
ticket; `sql` runs a statement by the ADBC driver of Flight SQL, and `digest` returns a digest of its rows.
"""

import json
import sys
from typing import Any

import adbc_driver_flightsql.dbapi
from pyarrow import flight

from godwit_bench.clients import job_loop
from godwit_bench.clients.job_loop import Jobs


def jobs(address: str, token: str | None = None) -> Jobs:
    client = flight.connect(f"grpc+tcp://{address}")
    shown = f"Bearer {token}" if token else None
    options = flight.FlightCallOptions(headers=[(b"authorization", shown.encode())] if shown else [])
    settings = {"adbc.flight.sql.authorization_header": shown} if shown else {}
    cursor = adbc_driver_flightsql.dbapi.connect(f"grpc://{address}", db_kwargs=settings, autocommit=True).cursor()

    def flight_rows(dataset: str, columns: list[str] | None = None, regions: list[str] | None = None, parts: int | None = None) -> dict[str, Any]:
        command = {"dataset": dataset, "columns": columns, "regions": regions, "parts": parts}
        command = {key: value for key, value in command.items() if value is not None}
        flight_info = client.get_flight_info(flight.FlightDescriptor.for_command(json.dumps(command).encode()), options)
        tables = [client.do_get(endpoint.ticket, options).read_all() for endpoint in flight_info.endpoints]
        return {"rows": sum(table.num_rows for table in tables), "bytes": sum(table.nbytes for table in tables)}

    def flight_info(dataset: str, times: int) -> dict[str, Any]:
        descriptor = flight.FlightDescriptor.for_path(dataset)
        for _ in range(times):
            client.get_flight_info(descriptor)
        return {"times": times}

    def ticket_rows(ticket: str) -> dict[str, Any]:
        table = client.do_get(flight.Ticket(ticket.encode()), options).read_all()
        return {"rows": table.num_rows, "bytes": table.nbytes}

    def adbc_rows(sql: str) -> dict[str, Any]:
        cursor.execute(sql)
        return job_loop.first_row_values(cursor.fetch_arrow_table())

    def digest(sql: str) -> dict[str, Any]:
        cursor.execute(sql)
        return job_loop.table_digest(cursor.fetch_arrow_table())

    return {"flight": flight_rows, "info": flight_info, "ticket": ticket_rows, "sql": adbc_rows, "digest": digest}


if __name__ == "__main__":
    job_loop.run_jobs(jobs(*sys.argv[1:]))
