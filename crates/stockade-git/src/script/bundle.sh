# Arguments: git, and how many lines of standard input are for update-ref; the rest is what the bundle holds. The bundle
# goes to standard output.
set -eu
git=$1 updates=$2
order=$GIT_DIR/stockade-order
rm -rf "$order"
cat >"$order"
head -n "$updates" "$order" | "$git" update-ref --stdin
tail -n "+$((updates + 1))" "$order" | "$git" bundle create -q - --stdin
rm -f "$order"
