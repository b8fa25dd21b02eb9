"""Images of containers: approved by name or digest, signed if the registry's settings say so, not too large."""

from __future__ import annotations

from muster.control.admission.base import Context
from muster.control.admission.guarded import refusing, rule_for
from muster.core.image_ref import ImageRef, matches, parse_image, pinned
from muster.core.reasons import Reason, reason
from muster.core.rules import GuardRule
from muster.core.spec import JobSpec
from muster.core.units import format_size


def find(spec: JobSpec, context: Context, rule: GuardRule) -> Reason | None:
    if spec.image is None:
        return None  # the engine's own, which its settings choose
    ref, looked = parse_image(spec.image), context.inspected.image
    if ref is None:
        message = f"{spec.image!r} is no name of an image"
        return reason("image_not_approved", message, "Write it like `registry.example/train:1.4`.", image=spec.image)
    digest, trouble = ref.digest, ""
    if looked is not None:
        digest, trouble = ref.digest or looked.digest, looked.trouble
    if not _approved(spec.image, digest, rule):
        unknown = f", and its digest is not known: {trouble}" if not digest and trouble else ""
        message = f"the image {spec.image!r} is none that the policy approves for project {spec.project!r}{unknown}"
        hint = f"Approved are {', '.join(f'`{one}`' for one in rule.approved[:5])}."
        return reason("image_not_approved", message, hint, image=spec.image, digest=digest)
    if looked is None:
        return None
    if looked.signed is False:
        message = f"the image {spec.image!r} is not signed with a key that the server's settings name{_why(trouble)}"
        return reason("image_unsigned", message, image=spec.image, digest=digest)
    return _too_large(spec.image, rule.limit, looked.size, trouble)


def with_digest(spec: JobSpec, context: Context) -> JobSpec:
    """The spec with the digest that the tag of its image stands for, if a registry said so. A policy that approves the
    bare name, and not the name with a digest, keeps it bare: the job could not be resumed otherwise."""
    looked = context.inspected.image
    if spec.image is None or looked is None or not looked.digest:
        return spec
    made = spec.model_copy(update={"image": pinned(spec.image, looked.digest)})
    rule = rule_for("images", spec, context.user, context.state)
    if rule.action == "off" or _approved(made.image, "", rule) or not _approved(spec.image, "", rule):
        return made
    return spec


def _approved(image: str | None, digest: str, rule: GuardRule) -> bool:
    ref = parse_image(image or "")
    if image is None or ref is None:
        return False
    names = _names(image, ref, ref.digest or digest)
    return not rule.approved or any(matches(pattern, *names) for pattern in rule.approved)


def _too_large(image: str, limit: int | None, size: int | None, trouble: str) -> Reason | None:
    if limit is None or (size is not None and size <= limit):
        return None
    most = format_size(limit)
    if size is None:
        message = f"images may have {most} at most, and nobody could say how large {image!r} is{_why(trouble)}"
    else:
        message = f"the image {image!r} has {format_size(size)} compressed, and {most} is the most"
    return reason("image_too_large", message, image=image, size=size, limit=limit)


def _names(written: str, ref: ImageRef, digest: str) -> tuple[str, ...]:
    """What a pattern may mean: as it was written, with the registry, and with the digest."""
    tagged = f"{ref.name}:{ref.tag}" if ref.tag else ref.name
    plain = () if ref.digest else (tagged,)
    return (written, *plain, *((f"{ref.name}@{digest}", f"{tagged}@{digest}") if digest else ()))


def _why(trouble: str) -> str:
    return f": {trouble}" if trouble else ""


check = refusing("images", find)
