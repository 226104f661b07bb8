#!/usr/bin/env bash
# Install the programs that turnlog is measured against into .agents/opponents/ (npm, pip). Does nothing for one that is
# already there in the right version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

counter=ccusage@20.0.24
viewer=agentsview==0.46.1
dir=.agents/opponents

die() {
    echo "opponents: $*" >&2
    exit 1
}

mkdir -p "$dir"
if [[ ! -f $dir/.counter || $(<"$dir/.counter") != "$counter" ]]; then
    command -v npm >/dev/null || die "npm is needed to install $counter; install Node.js first"
    echo "opponents: installing $counter"
    rm -rf "$dir/node_modules"
    (
        cd "$dir"
        echo '{"private": true}' >package.json
        npm install --ignore-scripts --no-audit --no-fund --no-package-lock --loglevel=error "$counter"
    )
    "$dir/node_modules/.bin/ccusage" --version >/dev/null || die "$counter does not start"
    echo "$counter" >"$dir/.counter"
fi
if [[ ! -f $dir/.viewer || $(<"$dir/.viewer") != "$viewer" ]]; then
    echo "opponents: installing $viewer"
    rm -rf "$dir/viewer"
    "${PYTHON:-python3}" -m venv "$dir/viewer"
    "$dir/viewer/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$viewer"
    "$dir/viewer/bin/agentsview" --version >/dev/null || die "$viewer does not start"
    echo "$viewer" >"$dir/.viewer"
fi
