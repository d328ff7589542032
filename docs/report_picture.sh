#!/bin/sh
# Draws docs/report.png, the report of a recorded run, with chromium. Run by hand; the picture is committed.
set -eu
cd "$(dirname "$0")/.."
page=$(mktemp --suffix .html)
trap 'rm -f "$page"' EXIT
.venv/bin/busbw report benchmarks/visits_202611/shown.json --output "$page"
chromium --headless --no-sandbox --hide-scrollbars --window-size=1200,770 --screenshot=docs/report.png "file://$page"
