"""The style sheet of every HTML file."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root{--ground:#fbfbfa;--raised:#fff;--ink:#1d2329;--faint:#5c6670;--rule:#e1e4e8;--accent:#2458c5;
--tone-0:#2458c5;--tone-1:#d9480f;--tone-2:#0b8a7c;--tone-3:#c2255c;--tone-4:#6741d9;--tone-5:#a87900;--tone-6:#2b8a3e;
--tone-7:#6c757d}
@media (prefers-color-scheme:dark){:root{--ground:#14171a;--raised:#1c2126;--ink:#e8eaed;--faint:#9aa5b1;--rule:#303840;
--accent:#8ab0ff;--tone-0:#7ea6ff;--tone-1:#ff9a5c;--tone-2:#45cdbd;--tone-3:#f783ac;--tone-4:#b197fc;--tone-5:#e3c04c;
--tone-6:#69c97c;--tone-7:#adb5bd}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:72rem;margin:0 auto;padding:1.5rem 1rem 3rem}
h1{font-size:1.6rem;line-height:1.2;margin:0 0 .3rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.2rem 0 .6rem}
h3{font-size:1rem;margin:0 0 .4rem;overflow-wrap:anywhere}
small{color:var(--faint);font-weight:400;font-size:.82rem}
header p,footer{color:var(--faint);margin:0;overflow-wrap:anywhere}
footer{margin-top:2.5rem;font-size:.85rem}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(15rem,1fr));gap:.8rem;margin:1.4rem 0}
.card{background:var(--raised);border:1px solid var(--rule);border-radius:.6rem;padding:.8rem 1rem;font-size:.9rem;
color:var(--faint)}
.card h3,.card b{color:var(--ink)}
.card b{font-size:1.1rem;font-variant-numeric:tabular-nums}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));gap:1rem}
.chart{margin:0;background:var(--raised);border:1px solid var(--rule);border-radius:.6rem;
padding:.9rem 1.2rem .8rem .8rem;min-width:0}
figcaption{font-weight:600;margin:0 0 .9rem .2rem}
figcaption small{display:block}
.frame{display:grid;grid-template-columns:3.1rem minmax(0,1fr);grid-template-rows:clamp(11rem,32vw,16rem) 1.5rem;
font-size:.75rem;color:var(--faint);font-variant-numeric:tabular-nums}
.frame svg{width:100%;height:100%;overflow:visible;display:block}
.y,.x{position:relative}
.x{grid-column:2}
.y span{position:absolute;right:.5rem;transform:translateY(50%);line-height:1}
.x span{position:absolute;top:.35rem;transform:translateX(-50%);white-space:nowrap}
.grid line{stroke:var(--rule);stroke-width:1;vector-effect:non-scaling-stroke}
.line{fill:none;stroke-width:2;vector-effect:non-scaling-stroke;stroke-linejoin:round}
.area{stroke:var(--raised);stroke-width:.5;vector-effect:non-scaling-stroke}
.dots path{fill:none;stroke-width:7;stroke-linecap:round;vector-effect:non-scaling-stroke}
.dots path:hover{stroke-width:12}
.dots.square path{stroke-linecap:square;stroke-width:4}
.ring{pointer-events:none}
.ring path{fill:none;stroke-linecap:round;vector-effect:non-scaling-stroke}
.ring .out{stroke:var(--tone-1);stroke-width:14}
.ring .in{stroke:var(--tone-0);stroke-width:7}
.lanes{overflow-x:auto}
.heads{display:flex;font-size:.8rem;font-weight:600;text-align:center;margin-bottom:.4rem;align-items:end}
.heads span{flex:1 1 0;min-width:0;padding:0 .3rem;overflow-wrap:anywhere}
.plane{position:relative;height:18rem;margin:.7rem 0 1rem}
.plane svg{width:100%;height:100%;overflow:visible;display:block}
.tracks path{fill:none;stroke-width:1.2;vector-effect:non-scaling-stroke;stroke-linejoin:round;stroke-linecap:round}
.tracks path:hover{stroke-width:4}
.uprights line{stroke:var(--faint);stroke-width:1;vector-effect:non-scaling-stroke;pointer-events:none}
.ticks span{position:absolute;transform:translateY(50%);margin-left:.25rem;padding:0 .15rem;line-height:1;
font-size:.72rem;white-space:nowrap;border-radius:.2rem;background:var(--raised);opacity:.85;pointer-events:none}
.axis{margin:.1rem 0 .4rem;text-align:right;font-size:.75rem;color:var(--faint)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;margin:0;padding:0 0 0 .2rem;font-size:.85rem}
.legend svg{margin-right:.4rem}
.scroll{overflow-x:auto;border:1px solid var(--rule);border-radius:.6rem;background:var(--raised)}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.4rem .9rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--rule)}
tr:last-child>*{border-bottom:0}
th:first-child{text-align:left;position:sticky;left:0;background:var(--raised);font-weight:500}
th:first-child small{display:block;white-space:normal;max-width:20rem}
.inner th:first-child{padding-left:2rem}
thead th,thead th:first-child{font-weight:600}
table:has(td.text:last-child) th:last-child{text-align:left}
dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.25rem 1.2rem;margin:0}
dt{color:var(--faint)}
dd{margin:0;overflow-wrap:anywhere}
ul{padding-left:1.2rem}
li{overflow-wrap:anywhere}
@media (max-width:34rem){.minor{display:none}th,td{padding:.35rem .6rem}
th:first-child{white-space:normal;min-width:8rem}
th:first-child small{display:none}dl{grid-template-columns:1fr}dd{margin-bottom:.4rem}}
@media print{.chart,.card,table{break-inside:avoid}}
"""
