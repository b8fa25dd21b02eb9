"""What a pickle may name: classes and functions that only make data. Whatever is not listed could do anything.

A list of what is forbidden is never complete, since any function of any installed package may be named. `pickles`
checks the arguments of the few functions here that load or decode something.
"""

from __future__ import annotations

import re
from typing import Final


def is_allowed(module: str, name: str) -> bool:
    return name in _NAMES.get(module, ()) or any(
        modules.fullmatch(module) and names.fullmatch(name) for modules, names in _SHAPES
    )


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ARRAYS: Final = _words("_reconstruct scalar")
_RANDOM: Final = _words("__randomstate_ctor __generator_ctor __bit_generator_ctor")
_DTYPES: Final = _words(
    "dtype ndarray matrix recarray bool_ bool8 bool int8 int16 int32 int64 intc intp int_ uint8 uint16 uint32 uint64 "
    "uint longlong ulonglong float16 float32 float64 float128 float_ half single double longdouble complex64 "
    "complex128 str_ bytes_ void datetime64 timedelta64 object_"
)
_NAMES: Final[dict[str, frozenset[str]]] = {
    "builtins": _words(
        "set frozenset slice complex bytearray bytes int float str bool list dict tuple range object Ellipsis "
        "NotImplemented"
    ),
    "_codecs": _words("encode"),
    "collections": _words("OrderedDict defaultdict deque Counter UserDict UserList"),
    "copyreg": _words("_reconstructor __newobj__ __newobj_ex__"),
    "datetime": _words("datetime date time timedelta timezone"),
    "decimal": _words("Decimal"),
    "fractions": _words("Fraction"),
    "uuid": _words("UUID SafeUUID"),
    "pathlib": _words("Path PosixPath WindowsPath PurePath PurePosixPath PureWindowsPath"),
    "pathlib._local": _words("Path PosixPath WindowsPath PurePath PurePosixPath PureWindowsPath"),
    "argparse": _words("Namespace"),
    "types": _words("SimpleNamespace"),
    "array": _words("array _array_reconstructor"),
    "zoneinfo": _words("ZoneInfo"),
    "torch": _words(
        "Size device dtype layout memory_format Tensor ByteStorage CharStorage ShortStorage IntStorage LongStorage "
        "HalfStorage FloatStorage DoubleStorage BFloat16Storage BoolStorage ComplexFloatStorage ComplexDoubleStorage "
        "QInt8Storage QInt32Storage QUInt8Storage QUInt4x2Storage QUInt2x4Storage UntypedStorage "
        "float16 half float32 float float64 double bfloat16 int8 int16 short int32 int int64 long uint8 uint16 uint32 "
        "uint64 bool complex32 complex64 cfloat complex128 cdouble float8_e4m3fn float8_e5m2 float8_e4m3fnuz "
        "float8_e5m2fnuz qint8 qint32 quint8 strided sparse_coo sparse_csr contiguous_format channels_last "
        "preserve_format per_tensor_affine per_channel_affine"
    ),
    "torch._utils": _words(
        "_rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_parameter _rebuild_parameter_with_state "
        "_rebuild_qtensor _rebuild_sparse_tensor _rebuild_nested_tensor _rebuild_meta_tensor_no_storage "
        "_rebuild_device_tensor_from_numpy _rebuild_device_tensor_from_cpu_tensor"
    ),
    "torch._tensor": _words("_rebuild_from_type_v2 Tensor"),
    "torch.serialization": _words("_get_layout"),
    "torch.storage": _words("_load_from_bytes UntypedStorage TypedStorage"),
    "torch.nn.parameter": _words("Parameter Buffer UninitializedParameter"),
    "numpy": _DTYPES,
    "numpy.core.multiarray": _ARRAYS,
    "numpy._core.multiarray": _ARRAYS,
    "numpy.core.numeric": _words("_frombuffer"),
    "numpy._core.numeric": _words("_frombuffer"),
    "numpy.ma.core": _words("_mareconstruct MaskedArray"),
    "numpy.random._pickle": _RANDOM,
    "numpy.random._mt19937": _words("MT19937 __pyx_unpickle_MT19937"),
    "numpy.random._pcg64": _words("PCG64 PCG64DXSM"),
    "numpy.random._philox": _words("Philox"),
    "numpy.random.bit_generator": _words("SeedSequence __pyx_unpickle_SeedSequence"),
    "joblib.numpy_pickle": _words("NumpyArrayWrapper"),
    "scipy.sparse._csr": _words("csr_matrix csr_array"),
    "scipy.sparse._csc": _words("csc_matrix csc_array"),
    "scipy.sparse._coo": _words("coo_matrix coo_array"),
    "sklearn.tree._tree": _words("Tree"),
    "sklearn.neighbors._kd_tree": _words("newObj KDTree64 KDTree32 KDTree"),
    "sklearn.neighbors._ball_tree": _words("newObj BallTree64 BallTree32 BallTree"),
    "sklearn.utils._bunch": _words("Bunch"),
    "xgboost.core": _words("Booster"),
    "lightgbm.basic": _words("Booster"),
}
_CLASS: Final = re.compile(r"[A-Z][A-Za-z0-9]*")
# Classes of layers, optimizers and estimators, whose constructors keep what they are given.
_SHAPES: Final = (
    (re.compile(r"torch\.nn\.modules(?:\.[a-z_0-9]+)+"), _CLASS),
    (re.compile(r"torch\.optim\.(?:adam|adamw|sgd|rmsprop|adagrad|adadelta|adamax|nadam|radam|lr_scheduler)"), _CLASS),
    (
        re.compile(
            r"sklearn\.(?:calibration|cluster|compose|covariance|cross_decomposition|decomposition|discriminant_analysis"
            r"|dummy|ensemble|feature_selection|gaussian_process|impute|isotonic|kernel_ridge|linear_model|manifold"
            r"|mixture|multiclass|multioutput|naive_bayes|neighbors|neural_network|pipeline|preprocessing"
            r"|semi_supervised|svm|tree|_loss)(?:\._[a-z_]+)*"
        ),
        re.compile(r"(?!FunctionTransformer)[A-Z][A-Za-z0-9]*"),
    ),
    (re.compile(r"xgboost\.sklearn"), re.compile(r"XGB[A-Za-z]+")),
    (re.compile(r"lightgbm\.sklearn"), re.compile(r"LGBM[A-Za-z]+")),
)
