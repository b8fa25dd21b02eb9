"""Kubernetes under the contract of all engines: a stand-in of its API, and pods that really run."""

from __future__ import annotations

from cluster_suite import ClusterContract
from rigs.kubernetes_rig import KubernetesRig


class TestKubernetes(ClusterContract):
    make = KubernetesRig
