#!/bin/sh
# Fill assets/vendor/ from the npm registry. Needs npm; only whoever updates the libraries runs it, no build does.
#
#   sh tools/fetch_vendor.sh
#
# MathJax: the combined component for TeX and MathML with CommonHTML output, its web fonts, and of the TeX extensions
# those that MathJax may load on demand and that _config.yml leaves switched on. Version 4 has another layout.
set -eu
version=3.2.2
extensions="bbox boldsymbol braket cancel color enclose html"

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && npm install --silent --no-save "mathjax@$version" >/dev/null)

from="$work/node_modules/mathjax"
to="$root/assets/vendor/mathjax"
rm -rf "$to"
mkdir -p "$to/input/tex/extensions" "$to/output/chtml/fonts"
cp "$from/LICENSE" "$to/"
cp "$from/es5/tex-mml-chtml.js" "$to/"
cp -r "$from/es5/output/chtml/fonts/woff-v2" "$to/output/chtml/fonts/"
for name in $extensions; do cp "$from/es5/input/tex/extensions/$name.js" "$to/input/tex/extensions/"; done
printf 'MathJax %s (https://www.mathjax.org), Apache License 2.0, unchanged: see LICENSE.\nMade by tools/fetch_vendor.sh.\n' "$version" > "$to/README"
echo "$to: $(du -sk "$to" | cut -f1) kB"
