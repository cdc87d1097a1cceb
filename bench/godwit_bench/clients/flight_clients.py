"""Standard clients of a `godwit serve`, without godwit code: flight_clients.py ADDRESS [TOKEN].

Jobs: `flight` reads a dataset without SQL by pyarrow, part by part, and `parallel_flight` all parts concurrently; `info` calls GetFlightInfo for
each of several datasets; `list` calls ListFlights once; `ticket` reads the rows of a ticket; `sql` runs a statement by the ADBC driver of Flight
SQL, and `digest` returns a digest of its rows; `partitions` reads the partitions of a statement concurrently by that driver, each over a connection
of its own.
"""

import concurrent.futures
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
    cursors = [adbc_driver_flightsql.dbapi.connect(f"grpc://{address}", db_kwargs=settings, autocommit=True).cursor()]
    cursor = cursors[0]
    flights = [client]

    def sizes(tables: list[Any]) -> dict[str, Any]:
        return {"rows": sum(table.num_rows for table in tables), "bytes": sum(table.nbytes for table in tables)}

    def endpoints(dataset: str, columns: list[str] | None, regions: list[str] | None, parts: int | None) -> list[flight.FlightEndpoint]:
        command = {"dataset": dataset, "columns": columns, "regions": regions, "parts": parts}
        command = {key: value for key, value in command.items() if value is not None}
        found: list[flight.FlightEndpoint] = client.get_flight_info(
            flight.FlightDescriptor.for_command(json.dumps(command).encode()), options
        ).endpoints
        return found

    def flight_rows(dataset: str, columns: list[str] | None = None, regions: list[str] | None = None, parts: int | None = None) -> dict[str, Any]:
        return sizes([client.do_get(endpoint.ticket, options).read_all() for endpoint in endpoints(dataset, columns, regions, parts)])

    def parallel_flight(dataset: str, parts: int) -> dict[str, Any]:
        while len(flights) < parts:
            flights.append(flight.connect(f"grpc+tcp://{address}"))
        found = endpoints(dataset, None, None, parts)
        with concurrent.futures.ThreadPoolExecutor(max(1, len(found))) as pool:
            return sizes(list(pool.map(lambda one, endpoint: one.do_get(endpoint.ticket, options).read_all(), flights, found)))

    def partitions(sql: str) -> dict[str, Any]:
        found, _ = cursor.adbc_execute_partitions(sql)
        while len(cursors) < len(found):
            cursors.append(adbc_driver_flightsql.dbapi.connect(f"grpc://{address}", db_kwargs=settings, autocommit=True).cursor())

        def read(one: Any, partition: bytes) -> Any:
            one.adbc_read_partition(partition)
            return one.fetch_arrow_table()

        with concurrent.futures.ThreadPoolExecutor(max(1, len(found))) as pool:
            return sizes(list(pool.map(read, cursors, found)))

    def flight_info(datasets: list[str]) -> dict[str, Any]:
        for dataset in datasets:
            client.get_flight_info(flight.FlightDescriptor.for_path(dataset), options)
        return {"datasets": len(datasets)}

    def flights_listed() -> dict[str, Any]:
        return {"datasets": sum(1 for _ in client.list_flights(options=options))}

    def ticket_rows(ticket: str) -> dict[str, Any]:
        table = client.do_get(flight.Ticket(ticket.encode()), options).read_all()
        return {"rows": table.num_rows, "bytes": table.nbytes}

    def adbc_rows(sql: str) -> dict[str, Any]:
        cursor.execute(sql)
        return job_loop.first_row_values(cursor.fetch_arrow_table())

    def digest(sql: str) -> dict[str, Any]:
        cursor.execute(sql)
        return job_loop.table_digest(cursor.fetch_arrow_table())

    return {
        "flight": flight_rows,
        "parallel_flight": parallel_flight,
        "info": flight_info,
        "list": flights_listed,
        "ticket": ticket_rows,
        "sql": adbc_rows,
        "digest": digest,
        "partitions": partitions,
    }


if __name__ == "__main__":
    job_loop.run_jobs(jobs(*sys.argv[1:]))
