/** What jobs ask for, and when they start, in words. */
import type { Schemas } from "../../api/client";
import { ago, bytes, exactTime, number, plural, span } from "../../format";

type Job = Schemas["JobView"];
type Forecast = Schemas["ForecastView"];

/** 2 × 8 H100; the nodes of the gang, and what each of them needs. */
export function asks(job: Job): string {
  const nodes =
    job.min_nodes && job.min_nodes < job.num_nodes ? `${job.min_nodes}–${job.num_nodes}` : String(job.num_nodes);
  return `${nodes} × ${each(job.resources)}`;
}

export function each(one: Schemas["ResourcesView"]): string {
  if (one.accelerators === 0) return `${number(one.cpus)} CPU${one.cpus === 1 ? "" : "s"}`;
  const part = one.share < 1000 ? one.share / 1000 : one.accelerators;
  return `${part} ${one.accelerator && one.accelerator !== "any" ? one.accelerator : "accelerators"}`;
}

/** All that it asks for, for the title of what is short. */
export function asksExactly(job: Job): string {
  const one = job.resources;
  const memory = one.memory ? `, ${bytes(one.memory)} memory` : "";
  const of = one.accelerators ? `${each(one)}, ` : "";
  return `${plural(job.num_nodes, "node")}, each with ${of}${plural(one.cpus, "CPU")}${memory}`;
}

/** In a sentence, as `muster queue forecast` says it. */
export function starts(forecast: Forecast, now: number): string {
  const { p50, p90 } = forecast;
  if (p50 === null) {
    if (forecast.never) return "not while nothing else changes";
    return forecast.after ? `not before ${ago(forecast.after, now)}` : "not known";
  }
  if (p50 <= now && (p90 === null || p90 <= now)) return "at once";
  const late = p90 !== null && p90 > p50 ? `, in 9 of 10 cases within ${roughly(p90 - now)}` : "";
  return `${p50 <= now ? "about now" : `in about ${roughly(p50 - now)}`}${late}`;
}

/** No more exact than a forecast is: 40 s, 21 min, 2 h 35 min, 3 d 4 h. */
export function roughly(seconds: number): string {
  const s = Math.max(0, seconds);
  const grain = s < 60 ? 5 : s < 3600 ? 60 : s < 86_400 ? 300 : 3600;
  return span(Math.max(grain, Math.round(s / grain) * grain));
}

/** As short as it can be said in a column. */
export function startShort(forecast: Forecast, now: number): string {
  if (forecast.p50 === null) return forecast.never ? "not as it is" : forecast.after ? "later" : "–";
  return forecast.p50 - now < 5 ? "at once" : ago(forecast.p50, now);
}

export function startsExactly(forecast: Forecast): string {
  const { p50, p90 } = forecast;
  const words = [
    p50 === null ? "P50 not known" : `P50 ${exactTime(p50)}`,
    p90 === null ? "P90 not known" : `P90 ${exactTime(p90)}`,
  ];
  return `${words.join("\n")}\nfrom ${plural(forecast.samples, "simulated future")}`;
}
