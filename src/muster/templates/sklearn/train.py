"""Cross-validates a random forest on generated data, a checkpoint after each fold; scikit-learn only, no PyTorch.

Run it with `python train.py`, or under Muster with `muster run job.yaml`: watched, restarted, recorded.
"""

from __future__ import annotations

import argparse
import json
import pickle
import statistics
import sys

from muster import runtime

try:
    from sklearn.datasets import make_classification
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import log_loss
    from sklearn.model_selection import StratifiedKFold
except ImportError as error:
    install = f"{sys.executable} -m pip install scikit-learn"
    sys.exit(f"This job needs scikit-learn, which this Python can't import ({error}). Install it with: {install}")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--samples", type=int, default=4000)
parser.add_argument("--features", type=int, default=20)
parser.add_argument("--folds", type=int, default=5)
parser.add_argument("--trees", type=int, default=100)
parser.add_argument("--seed", type=int, default=1)


def main(args: argparse.Namespace) -> None:
    x, y = make_classification(args.samples, args.features, n_informative=8, class_sep=1.0, random_state=args.seed)
    folds = list(StratifiedKFold(args.folds, shuffle=True, random_state=args.seed).split(x, y))
    scores = load()  # accuracy of the folds that are behind us
    runtime.params(**vars(args))

    last = min(args.folds, runtime.preflight_steps() or args.folds)
    for fold in range(len(scores), last):
        train, test = folds[fold]  # indices of the rows
        model = RandomForestClassifier(args.trees, random_state=args.seed + fold).fit(x[train], y[train])
        scores.append(float(model.score(x[test], y[test])))
        mean, loss = statistics.mean(scores), float(log_loss(y[test], model.predict_proba(x[test])))
        runtime.report(step=fold + 1, loss=loss, val_accuracy=scores[-1], mean_val_accuracy=mean)
        runtime.progress(fold + 1, total=args.folds, unit="fold")
        print(f"fold {fold + 1} of {args.folds}: accuracy {scores[-1]:.4f}, mean so far {mean:.4f}", flush=True)
        with runtime.checkpoint(fold + 1) as folder:
            (folder / "model.pkl").write_bytes(pickle.dumps(model))
            (folder / "scores.json").write_text(json.dumps(scores))
        if runtime.should_stop():
            print(f"asked to stop: {fold + 1} of {args.folds} folds are saved", flush=True)
            return


def load() -> list[float]:
    folder = runtime.last_checkpoint()
    if folder is None:
        return []
    scores: list[float] = json.loads((folder / "scores.json").read_text())
    print(f"continuing after fold {len(scores)} ({folder})", flush=True)
    return scores


if __name__ == "__main__":
    try:
        main(parser.parse_args())
    except KeyboardInterrupt:
        print("interrupted: run it again to continue after the last finished fold", flush=True)
        sys.exit(130)  # what a shell gives for Ctrl-C
