#!/usr/bin/env bash
# Install the agent programs of agents.txt into .agents/<name>/ through npm. Does nothing for one that is already there
# in the right version.
#
# Install scripts do not run: they only copy or link the native binary, which its platform package holds anyway, and
# that binary is what turnlog starts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
    echo "agents: $*" >&2
    exit 1
}

# The file to run, below node_modules/; a new program in agents.txt needs its line here.
find_binary() {
    case $1 in
        # In reverse, x64 comes before x64-baseline.
        opencode) find node_modules -path 'node_modules/opencode-*/bin/opencode' -type f | LC_ALL=C sort -r | head -n 1 ;;
        # The native program of the platform package; `.exe` files beside it only carry the name.
        claude) find node_modules/@anthropic-ai -path '*/claude-code-*/claude' -type f | LC_ALL=C sort -r | head -n 1 ;;
        codex) find node_modules/@openai -path '*/vendor/*/bin/codex' -type f | LC_ALL=C sort | head -n 1 ;;
        *) die "where is the binary of $1? tools/agents.sh does not know" ;;
    esac
}

install_agent() {
    local name=$1 package=$2 version=$3 binary
    local dir=.agents/$name wanted=$2@$3
    if [[ -f $dir/.installed && $(<"$dir/.installed") == "$wanted" ]]; then
        return
    fi
    command -v npm >/dev/null || die "npm is needed to install $wanted; install Node.js first"
    echo "agents: installing $wanted"
    # From nothing: half an installation or another version must not shine through.
    rm -rf "$dir"
    mkdir -p "$dir"
    (
        cd "$dir"
        echo '{"private": true}' >package.json
        npm install --ignore-scripts --no-audit --no-fund --no-package-lock --loglevel=error "$wanted"
        binary=$(find_binary "$name")
        [[ -n $binary ]] || die "$wanted has no binary for this platform"
        # A program writes into its home at the first start; give it one of its own.
        home=$(mktemp -d)
        trap 'rm -rf "$home"' EXIT
        reported=$(HOME=$home XDG_CONFIG_HOME=$home XDG_DATA_HOME=$home XDG_CACHE_HOME=$home XDG_STATE_HOME=$home \
            "./$binary" --version </dev/null)
        [[ $reported == *"$version"* ]] || die "$dir/$binary says $reported, not $version"
        echo "agents: $dir/$binary $version"
    )
    echo "$wanted" >"$dir/.installed"
}

while read -r name package version rest; do
    [[ -z $name || $name == \#* ]] && continue
    [[ -n $version && -z $rest ]] || die "agents.txt: expected 'name package version', got: $name $package $version $rest"
    # Names on the command line pick some of the list; none means all.
    [[ $# -eq 0 || " $* " == *" $name "* ]] || continue
    # npm must not eat the list
    install_agent "$name" "$package" "$version" </dev/null
done <agents.txt
