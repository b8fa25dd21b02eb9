"""The style of a study's report: the shades of ranks, bars in tables, and small charts side by side."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root{--g0:#0b3a8c;--g1:#3f7bd9;--g2:#93b6ea;--g3:#c4ced9;--bad:#c2255c}
@media (prefers-color-scheme:dark){:root{--g0:#e3edff;--g1:#86aeff;--g2:#4169b8;--g3:#3d4855;--bad:#f783ac}}
.g0 path,path.g0{stroke:var(--g0)}.g1 path,path.g1{stroke:var(--g1)}
.g2 path,path.g2{stroke:var(--g2)}.g3 path,path.g3{stroke:var(--g3)}
.bad path,path.bad{stroke:var(--bad)}
rect.g0{fill:var(--g0)}rect.g1{fill:var(--g1)}rect.g2{fill:var(--g2)}rect.g3{fill:var(--g3)}
rect:hover{stroke:var(--tone-1);stroke-width:2;vector-effect:non-scaling-stroke}
.top path,.line.top{stroke:var(--tone-1)}
.line.top{stroke-width:3}
.line.best{stroke:var(--tone-1);stroke-width:2.5}
.line.typical{stroke:var(--tone-0);stroke-width:2.5;stroke-dasharray:9 4}
.line.other{stroke:var(--faint);stroke-width:1;opacity:.45}
.line.other:hover{stroke:var(--ink);opacity:1;stroke-width:2}
.line.spread{stroke:var(--ink);stroke-width:1.5}
.line.mean{stroke:var(--ink);stroke-width:4}
.mark path{stroke:var(--tone-2)}
.seen path{stroke:var(--tone-1)}
.tracks path.top{stroke:var(--tone-1);stroke-width:3}
.cards{grid-template-columns:repeat(auto-fit,minmax(min(100%,12rem),1fr))}
.marks{margin:1rem 0 .8rem}
.legend svg{overflow:visible}.legend .ring .out{stroke-width:11}.legend .ring .in{stroke-width:5}
.wide{margin-top:1rem}
.charts.small{grid-template-columns:repeat(auto-fit,minmax(min(100%,21rem),1fr));margin-top:1rem}
.small .frame{grid-template-rows:clamp(9rem,22vw,12rem) 1.5rem}
.wide .frame{grid-template-rows:clamp(13rem,40vw,22rem) 1.5rem}
details{margin:.5rem 0 0 .2rem;font-size:.85rem}
summary{cursor:pointer;color:var(--accent)}
details .scroll{max-height:20rem;overflow:auto;margin-top:.4rem}
.text{text-align:left;white-space:normal;min-width:11rem;overflow-wrap:anywhere}
.bar{display:flex;width:8rem;height:.8rem;background:var(--rule);border-radius:.2rem;overflow:hidden}
.bar i{display:block}
.kept{background:var(--g1)}.held{background:var(--tone-5)}.cut{background:var(--g3)}.gone{background:var(--bad)}
.say{background:var(--raised);border:1px solid var(--rule);border-left:.3rem solid var(--tone-1);border-radius:.4rem;
padding:.6rem 1rem;margin:.6rem 0}
.long th:first-child{min-width:0}
.long .scroll{max-height:40rem;overflow:auto}
.long thead th{position:sticky;top:0;background:var(--raised);z-index:1}
.long thead th:first-child{z-index:2}
section>p,.marks p{margin:.2rem 0 .6rem;color:var(--faint);font-size:.9rem}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
@media (max-width:34rem){.bar{width:6rem}.text{min-width:9rem}}
"""
