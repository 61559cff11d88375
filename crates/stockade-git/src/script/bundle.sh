# Arguments: git, and the references to make inside, as update-ref takes them. Standard input says what the bundle holds and
# what it does not; it goes to standard output.
set -eu
printf '%s' "$2" | "$1" update-ref --stdin
exec "$1" bundle create -q - --stdin
