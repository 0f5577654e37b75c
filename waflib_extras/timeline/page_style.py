"""The style of a timeline's page: light and dark, for wide and narrow screens."""

STYLE = """\
:root {
	--ground: #ffffff; --ink: #1d2530; --soft: #5c6875; --line: #d5dbe2; --panel: #f4f6f8; --accent: #1f6fd0;
	--k0: #2a9d4e; --k1: #e08a00; --k2: #8a5fc2; --k3: #2f77d0; --k4: #7db4ea; --k5: #71849a; --k6: #c9a800;
	--k7: #d02f3a; --k8: #b0348f; --k9: #b7a58c; --k10: #0f8f8f; --dim: #e3e7ec; --mark: #111820;
	--r0: #9aa7b4; --r1: #c9a800; --r2: #e08a00; --r3: #7db4ea; --r4: #b0348f; --r5: #d02f3a; --r6: #8a5fc2;
	--r7: #cfd6dd; --r8: #71849a; --r9: #0f8f8f; --r10: #b7a58c;
}
@media (prefers-color-scheme: dark) {
	:root {
		--ground: #12171d; --ink: #e3e9f0; --soft: #97a4b2; --line: #2e3843; --panel: #1a2129; --accent: #6cb0ff;
		--k0: #46b86b; --k1: #f0a431; --k2: #a98be0; --k3: #4b93ea; --k4: #a5cdf5; --k5: #8b9db1; --k6: #e0c33a;
		--k7: #f0565f; --k8: #d95fb8; --k9: #8f8069; --k10: #35b5b5; --dim: #262f39; --mark: #ffffff;
		--r0: #5b6875; --r1: #e0c33a; --r2: #f0a431; --r3: #a5cdf5; --r4: #d95fb8; --r5: #f0565f; --r6: #a98be0;
		--r7: #3a4550; --r8: #8b9db1; --r9: #35b5b5; --r10: #8f8069;
	}
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 14px/1.45 system-ui, sans-serif; }
header, main { max-width: 1800px; margin: 0 auto; padding: 0 16px; }
header { padding-top: 12px; }
h1 { font-size: 20px; margin: 0; overflow-wrap: anywhere; }
h1 .failed { color: var(--k7); }
h2 { font-size: 15px; margin: 0 0 4px; }
p { margin: 4px 0; color: var(--soft); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(165px, 1fr)); gap: 8px; margin: 12px 0; }
dl div { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: 6px 10px; }
dt { color: var(--soft); font-size: 12px; }
dd { margin: 0; font-size: 17px; font-variant-numeric: tabular-nums; }
dd small { display: block; font-size: 12px; color: var(--soft); }
.bar { display: flex; flex-wrap: wrap; gap: 8px 14px; align-items: center; margin-bottom: 6px; }
.bar .grow { flex: 1 1 220px; display: flex; gap: 6px; align-items: center; }
.bar .grow input { flex: 1; min-width: 0; }
input[type=search], select, button {
	font: inherit; color: inherit; background: var(--ground); border: 1px solid var(--line); border-radius: 5px;
	padding: 4px 8px; min-height: 32px;
}
button { cursor: pointer; min-width: 32px; }
button:hover { border-color: var(--accent); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
.buttons { display: inline-flex; gap: 4px; }
#matches { color: var(--soft); font-variant-numeric: tabular-nums; }
#legend {
	display: flex; flex-wrap: wrap; gap: 2px 14px; list-style: none; margin: 0 0 6px; padding: 0; font-size: 12.5px;
}
#legend i { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 5px; }
#frame { position: relative; border: 1px solid var(--line); border-radius: 6px; overflow: hidden; }
canvas { display: block; width: 100%; touch-action: pan-y; cursor: grab; outline-offset: -2px; }
canvas.dragged { cursor: grabbing; }
#tip {
	position: absolute; max-width: min(420px, 92%); pointer-events: none; background: var(--ground); color: var(--ink);
	border: 1px solid var(--line); border-radius: 6px; padding: 6px 10px; font-size: 12.5px;
	box-shadow: 0 3px 14px rgba(0, 0, 0, .28); overflow-wrap: anywhere;
}
#tip b { display: block; }
#tip[hidden] { display: none; }
#keys { font-size: 12px; }
kbd { border: 1px solid var(--line); border-radius: 3px; padding: 0 4px; background: var(--panel); }
.columns {
	display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); gap: 20px; margin: 16px 0;
}
.columns section { min-width: 0; }
.scroll { max-height: 420px; overflow: auto; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { padding: 3px 8px; text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th { position: sticky; top: 0; background: var(--panel); font-weight: 600; }
th:first-child, td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 130px; }
tr + tr td { border-top: 1px solid var(--line); }
td button {
	all: unset; cursor: pointer; color: var(--accent); overflow-wrap: anywhere; text-align: left;
}
td button:focus-visible { outline: 2px solid var(--accent); }
td i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px; }
@media (max-width: 640px) {
	header, main { padding-left: 10px; padding-right: 10px; }
	dl { grid-template-columns: repeat(2, 1fr); }
	#keys { display: none; }
	button, input[type=search], select { min-height: 40px; min-width: 40px; }
	td button { min-height: 0; min-width: 0; }
}
"""
