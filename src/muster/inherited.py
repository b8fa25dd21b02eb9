"""Which variables launchers and ranks inherit from the environment of a server or node: only those on a list.

Names that look like a credential are on no list. An administrator adds names with `pass_env` in an engine's settings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlsplit

_NAMES: Final = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM", "NO_COLOR", "TMPDIR",
    "HOSTNAME", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_EXE", "LD_LIBRARY_PATH", "LIBRARY_PATH",
    "CPATH", "MANPATH", "MODULEPATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "TOKENIZERS_PARALLELISM", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK", "TF_CPP_MIN_LOG_LEVEL", "CI",
})  # fmt: skip
_PATTERNS: Final = (
    "LC_*", "PYTHON*", "CUDA_*", "CUBLAS_*", "CUDNN_*", "NVIDIA_*", "NCCL_*", "GLOO_*", "UCX_*", "FI_*", "OMP_*",
    "MKL_*", "OPENBLAS_*", "KMP_*", "GOMP_*", "NUMEXPR_*", "TORCH_*", "PYTORCH_*", "TORCHINDUCTOR_*", "TRITON_*",
    "XLA_*", "JAX_*", "ROCR_*", "HIP_*", "HSA_*", "MALLOC_*", "SLURM_*", "SLURMD_*", "PMI_*", "PMIX_*",
)  # fmt: skip
_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"})
_CREDENTIAL: Final = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE|AUTH|JWT|_KEY\b", re.I)
# Variables that a launcher itself reads. Ranks get Muster's variables only from the launch.
_LAUNCHERS: Final = (
    "MUSTER_HOME", "MUSTER_IMAGE", "MUSTER_FAULT_LAUNCHER", "MUSTER_NODE", "MUSTER_PY_SPY", "MUSTER_SCRATCH",
    "MUSTER_SPOT_NOTICE", "MUSTER_DCGM_URL", "MUSTER_NODE_EXPORTER_URL",
)  # fmt: skip


def inherited(base: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """The part of `base` that a program may see. `more` has further names; one that ends with * is a pattern."""
    wanted = tuple(more)
    return {name: value for name, value in base.items() if _passes(name, value, wanted)}


def for_launcher(base: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """The same for a launcher, or the process that forks launchers."""
    return inherited(base, more) | {name: base[name] for name in _LAUNCHERS if name in base}


def home_of(base: Mapping[str, str]) -> str:
    """The folder that a program uses as its home; empty if there is none that could be replaced."""
    home = os.path.realpath(base.get("HOME") or "/")
    return home if home != "/" and os.path.isdir(home) else ""  # noqa: PTH112


def _passes(name: str, value: str, more: tuple[str, ...]) -> bool:
    if name in more or name in _NAMES:
        return True
    if name.lower() in _PROXIES:
        return not _has_login(value)
    listed = any(fnmatchcase(name, pattern) for pattern in (*_PATTERNS, *more))
    return listed and not _CREDENTIAL.search(name)


def _has_login(proxy: str) -> bool:
    return "@" in (urlsplit(proxy).netloc if "//" in proxy else proxy)
