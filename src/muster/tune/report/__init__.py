"""The report of a study as data: pure functions of its view and of facts about its trials."""

from muster.tune.report.curves import curve_numbers
from muster.tune.report.facts import Importance, LearningCurve, StudyFacts, TrialRun, marks_of
from muster.tune.report.head import limits
from muster.tune.report.report import study_report, study_status

__all__ = [
    "Importance", "LearningCurve", "StudyFacts", "TrialRun", "curve_numbers", "limits", "marks_of",
    "study_report", "study_status",
]  # fmt: skip
