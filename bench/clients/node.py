"""Clients of a `godwit serve` that know nothing of it: node.py ADDRESS.

Jobs: `flight`, a dataset without SQL by pyarrow; `sql` by the ADBC driver of Flight SQL.
"""

import json
import sys

import _loop
from pyarrow import flight


def jobs(address):
    import adbc_driver_flightsql.dbapi

    client = flight.connect(f"grpc+tcp://{address}")
    connection = adbc_driver_flightsql.dbapi.connect(f"grpc://{address}", autocommit=True)
    cursor = connection.cursor()

    def by_flight(dataset, columns=None, regions=None, parts=None):
        command = {"dataset": dataset, "columns": columns, "regions": regions, "parts": parts}
        command = {key: value for key, value in command.items() if value is not None}
        info = client.get_flight_info(flight.FlightDescriptor.for_command(json.dumps(command).encode()))
        tables = [client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
        return {"rows": sum(table.num_rows for table in tables), "bytes": sum(table.nbytes for table in tables)}

    def by_adbc(sql):
        cursor.execute(sql)
        table = cursor.fetch_arrow_table()
        first = table.slice(0, 1).to_pylist() if table.num_rows == 1 else None
        return {"rows": table.num_rows, "bytes": table.nbytes, "first": list(first[0].values())[0] if first else None}

    return {"flight": by_flight, "sql": by_adbc}


if __name__ == "__main__":
    _loop.serve(jobs(sys.argv[1]))
