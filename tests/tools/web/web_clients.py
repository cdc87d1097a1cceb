"""Asks a server over plain HTTP with clients of others: the htsget package of GA4GH's community, their compliance suite of
refget, and Prometheus' own parsers.

Arguments: what to do, and words for it. Prints what was found, a line each.
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


def by_package(url, kind, path, token, name="", start="", end=""):
    """A file of a region, or all of one, by the package."""
    words = {"data_format": kind, "bearer_token": token or None}
    if name:
        words["reference_name"] = name
    if start:
        words |= {"start": int(start), "end": int(end)}
    with open(path, "wb") as out:
        htsget.get(url, out, max_retries=0, **words)


def opened(url, headers, body=None):
    request = urllib.request.Request(url, headers=headers, data=body)
    with urllib.request.urlopen(request) as answer:
        return answer.headers, answer.read()


def by_hand(url, path, token="", body=""):
    """The same by the letter of the specification, which `POST` needs where there is a body. Prints the classes of the parts."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if body:
        headers["Content-Type"] = "application/json"
    told, text = opened(url, headers, body.encode() or None)
    assert told["Content-Type"].startswith("application/vnd.ga4gh.htsget.v1.3.0+json"), told["Content-Type"]
    ticket = json.loads(text)["htsget"]
    with open(path, "wb") as out:
        for part in ticket["urls"]:
            if part["url"].startswith("data:"):
                out.write(base64.b64decode(part["url"].split(",", 1)[1], validate=True))
                continue
            told, read = opened(part["url"], part.get("headers", {}))
            assert int(told["Content-Length"]) == len(read), told
            out.write(read)
    print(ticket["format"], *(part.get("class", "-") for part in ticket["urls"]))


def ticket(url, token=""):
    """A ticket, as it comes."""
    print(opened(url, {"Authorization": f"Bearer {token}"} if token else {})[1].decode())


def status_of(url, headers):
    """The code of an answer to some headers."""
    try:
        opened(url, json.loads(headers))
    except urllib.error.HTTPError as error:
        print(error.code, json.load(error)["htsget"]["error"])
    else:
        print(200)


def samples(url, accept, token=""):
    """All samples of the metrics of a server: name, labels, value; with the type of the answer first."""
    headers = {"Accept": accept} | ({"Authorization": f"Bearer {token}"} if token else {})
    told, text = opened(url, headers)
    kind = told["Content-Type"]
    is_open = kind.startswith("application/openmetrics-text")
    parser = prometheus_client.openmetrics.parser if is_open else prometheus_client.parser
    print(kind)
    for family in parser.text_string_to_metric_families(text.decode()):
        assert family.documentation and family.type != "unknown", family
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            print(family.name, sample.name, labels or "-", sample.value, sep="\t")


def refget_sequences(directory):
    """The sequences that the compliance suite asks for, as FASTA files."""
    for path in pathlib.Path(compliance_suite.utils.SEQUENCE_FILES).glob("*.faa"):
        shutil.copy(path, pathlib.Path(directory) / f"{path.stem}.fa")


def refget_suite(url):
    """The results of the compliance suite: 1 passed, 0 left out, -1 failed, and the name of the test."""
    runner = compliance_suite.test_runner.TestRunner(url)
    runner.run_tests()
    for result in runner.generate_final_json()["test_results"]:
        print(result["result"], result["name"], [case for case in result["edge_cases"] if case["result"] == -1] or "")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
