"""The batch scripts, of gangs and of nodes' checks. Their text is always the same; what differs between gangs is in
files of the gang's folder."""

from __future__ import annotations

from typing import Final

# $1 the engine's folder, $2 the gang's folder or the array's table below it, $3 Python, $4 the package with the
# launcher, $5 for how many seconds a requeued job waits to be assigned an attempt. A signal comes before the time limit
# and on preemption (USR1), and when Slurm ends the job (TERM).
# The script finds the reason, writes it as an order to the gang's folder, and signals the launchers.
BATCH: Final = r"""#!/bin/bash
child='' rang='' reason=''
trap 'rang="$rang USR1"; leave USR1' USR1
trap 'rang="$rang TERM"; leave TERM' TERM

order() { # reason, seconds
    [ -n "$folder" ] || return 0
    if [ ! -e "$folder/orders.json" ]; then
        printf '{"id": 1, "kind": "stop", "reason": "%s", "grace": %d}' "$1" "$2" >"$folder/.orders.$SLURM_JOB_ID"
        mv -f "$folder/.orders.$SLURM_JOB_ID" "$folder/orders.json"
    fi
}

leave() {
    [ -n "$folder" ] || { [ "$1" = USR1 ] || exit 0; return 0; }
    if [ "$1" = TERM ]; then
        told=$(grep -a 'CANCELLED AT' "$root/out/$SLURM_JOB_ID.out" | tail -n 1)
        printf '%s\n' "$told" >"$folder/told"
        case $told in
            *'DUE TO TIME LIMIT'*) order time_limit 5 ;;
            *'DUE TO NODE FAIL'*) order node_lost 5 ;;
            *PREEMPTION*|*REQUEUE*) order preempted 5 ;;
            *) order cancelled_outside 5 ;;
        esac
    elif [ ! -e "$folder/orders.json" ]; then
        shown=$(scontrol show job --oneliner "$SLURM_JOB_ID")
        left=10 reason=time_limit
        [[ $shown =~ \ EndTime=([0-9T:-]+) ]] && left=$(($(date -d "${BASH_REMATCH[1]}" +%s) - $(date +%s)))
        [[ $shown =~ \ PreemptTime=[0-9] ]] && reason=preempted
        order "$reason" $((left > 4 ? left - 2 : 2))
    fi
    [ -n "$child" ] || return 0
    if [ "$nodes" -gt 1 ]; then
        # A signal for a step reaches the ranks as well, so it is one that does nothing to them.
        timeout 10 scancel --signal=URG "$SLURM_JOB_ID" >/dev/null 2>&1 &
    else
        kill -USR1 "$child" 2>/dev/null
    fi
}

root=$1 python=$3 package=$4 restart=${SLURM_RESTART_COUNT:-0} nodes=${SLURM_JOB_NUM_NODES:-1}
if [ "$restart" -gt 0 ]; then
    # Queued again: this is another attempt, if the server wants one.
    note=$root/next/$SLURM_JOB_ID.$restart
    until [ -s "$note" ]; do
        [ "$SECONDS" -lt "$5" ] || exit 0
        sleep 0.2
        ls "$root/next" >/dev/null
    done
    read -r name <"$note"
elif [ -n "$SLURM_ARRAY_TASK_ID" ]; then
    while read -r index name; do [ "$index" != "$SLURM_ARRAY_TASK_ID" ] || break; done <"$root/$2"
else
    name=$2
fi
folder=$root/$name
[ -e "$folder/gang.json" ] || exit 0
[ -z "$rang" ] || leave USR1

if [ "$nodes" -gt 1 ]; then
    srun --ntasks-per-node=1 --nodes="$nodes" --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --input=none \
        --kill-on-bad-exit=0 --wait=0 "$python" "$package" slurm "$folder" &
else
    "$python" "$package" slurm "$folder" </dev/null &
fi
child=$!
wait "$child"
status=$?
# A signal interrupts the waiting, not the launchers.
while [ "$status" -gt 128 ] && kill -0 "$child" 2>/dev/null; do
    wait "$child"
    status=$?
done
[ "$status" -le 128 ] || { wait "$child"; status=$?; }
# It has saved and left early: the nodes are free for whoever needs them, and the job keeps its place in the queue.
if [ "$reason" = preempted ] && [ "$status" -ne 0 ] && scontrol requeue "$SLURM_JOB_ID"; then
    sleep 30 &
    wait
fi
exit "$status"
"""

# $1 Python, $2 the package with the launcher, then the arguments of `muster.runtime.node_checks`.
CHECK: Final = """#!/bin/bash
exec "$1" "$2" check "${@:3}"
"""
