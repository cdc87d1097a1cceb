"""Queries a server over HTTP with third-party clients: the htsget package and the refget compliance suite of the GA4GH community, and the
parsers of Prometheus.

Arguments: a command, and its arguments. Prints the results, one per line.
"""

import base64
import json
import pathlib
import shutil
import sys
import urllib.error
import urllib.request

import compliance_suite.test_runner
import compliance_suite.utils
import htsget
import prometheus_client.openmetrics.parser
import prometheus_client.parser


def fetch_by_htsget_package(url, kind, path, token, name="", start="", end=""):
    """Downloads a region of a file, or all of it, by the htsget package."""
    options = {"data_format": kind, "bearer_token": token or None}
    if name:
        options["reference_name"] = name
    if start:
        options |= {"start": int(start), "end": int(end)}
    with open(path, "wb") as out:
        htsget.get(url, out, max_retries=0, **options)


def open_url(url, headers, body=None):
    request = urllib.request.Request(url, headers=headers, data=body)
    with urllib.request.urlopen(request) as answer:
        return answer.headers, answer.read()


def fetch_by_specification(url, path, token="", body=""):
    """Downloads a file by the steps of the htsget specification, by POST if there is a body. Prints the format and the classes of the parts."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if body:
        headers["Content-Type"] = "application/json"
    response_headers, text = open_url(url, headers, body.encode() or None)
    assert response_headers["Content-Type"].startswith("application/vnd.ga4gh.htsget.v1.3.0+json"), response_headers["Content-Type"]
    ticket = json.loads(text)["htsget"]
    with open(path, "wb") as out:
        for part in ticket["urls"]:
            if part["url"].startswith("data:"):
                out.write(base64.b64decode(part["url"].split(",", 1)[1], validate=True))
                continue
            response_headers, read = open_url(part["url"], part.get("headers", {}))
            assert int(response_headers["Content-Length"]) == len(read), response_headers
            out.write(read)
    print(ticket["format"], *(part.get("class", "-") for part in ticket["urls"]))


def get_ticket(url, token=""):
    """Prints a htsget ticket."""
    print(open_url(url, {"Authorization": f"Bearer {token}"} if token else {})[1].decode())


def http_status(url, headers):
    """Prints the HTTP status for the given headers."""
    try:
        open_url(url, json.loads(headers))
    except urllib.error.HTTPError as error:
        print(error.code, json.load(error)["htsget"]["error"])
    else:
        print(200)


def metric_samples(url, accept, token=""):
    """Prints the content type, and all samples of the metrics of a server: family, name, labels, value."""
    headers = {"Accept": accept} | ({"Authorization": f"Bearer {token}"} if token else {})
    response_headers, text = open_url(url, headers)
    kind = response_headers["Content-Type"]
    is_open = kind.startswith("application/openmetrics-text")
    parser = prometheus_client.openmetrics.parser if is_open else prometheus_client.parser
    print(kind)
    for family in parser.text_string_to_metric_families(text.decode()):
        assert family.documentation and family.type != "unknown", family
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            print(family.name, sample.name, labels or "-", sample.value, sep="\t")


def write_refget_sequences(directory):
    """Writes the sequences that the compliance suite requests, as FASTA files."""
    for path in pathlib.Path(compliance_suite.utils.SEQUENCE_FILES).glob("*.faa"):
        shutil.copy(path, pathlib.Path(directory) / f"{path.stem}.fa")


def run_refget_suite(url):
    """Runs the compliance suite; prints its results: 1 passed, 0 skipped, -1 failed, and the name of the test."""
    runner = compliance_suite.test_runner.TestRunner(url)
    runner.run_tests()
    for result in runner.generate_final_json()["test_results"]:
        print(result["result"], result["name"], [case for case in result["edge_cases"] if case["result"] == -1] or "")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
