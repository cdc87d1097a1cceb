"""Scoring with models of XGBoost, LightGBM, scikit-learn and ONNX Runtime over Arrow Flight.

::

    service = godwit.scoring.serve({"filter": booster}, "127.0.0.1:0")
    with godwit.scoring.connect(service.url) as scorer:
        table = scorer.score(session.variants("S"), keep=["contig", "position"])

A library is imported when one of its models is served. ``python -m godwit.scoring MODELS`` runs a service as a program.
"""

from ._models import Function, Model
from ._scorer import Scorer, Stream, connect
from ._service import Service, serve

__all__ = ["Function", "Model", "Scorer", "Service", "Stream", "connect", "serve"]
