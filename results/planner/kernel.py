"""The event loop of a simulation: one function over plain arrays, run as it stands or compiled to machine code.

Written so that both give the same bits: only + - * / and comparisons of doubles, in one order, and no mathematical
function. Arrays may be numpy's (compiled) or lists (interpreted). It can be left and entered again: when it needs
more draws or more room it says so, and all it knows is in its arguments.

Generation runs on a clock of its own, `gen`, which every running sequence shares: it stands still in a pause and is
slowed by load, so a turn begun at `gen` ends at `gen` + its work whatever happens meanwhile, and one heap holds all.
Without load or pauses `gen` is virtual time itself, and ends are exact sums.
"""

from typing import Any

from results.planner.heap import sift_down, sift_up
from results.planner.warm import keep

# What it needs when it returns.
DONE, NEED_DRAWS, NEED_GROUPS, NEED_UPDATES, STUCK = 0, 1, 2, 3, 4

# What may start, and when.
BATCHES, ONE_STEP_OFF, ADMISSION, FREE = 0, 1, 2, 3

# The trainer; odd where something has an end.
IDLE, TRAINING, DRAINING, SYNCING = 0, 1, 2, 3

# Parameters, whole numbers.
(WORKERS, GROUP, BATCH, STARTED_BATCH, RULE, MAX_STALENESS, DISCARDS, BY_START, WAITS, KEEPS, FLAT, STRIDE,
 LAST_UPDATE, WARMUP, BINS, RECORDED) = range(16)  # fmt: skip
PARAMETERS = 16

# State, whole numbers.
(NEXT, LIVE, GENERATING, IN_TOOL, LIMIT, TRAINER, TAKEN, TRAINED_VERSION, VISIBLE, ENDED, HELD, QUEUED, HEAD,
 FREE_GROUPS, FREE_SLOTS, OPEN_GROUP, PAUSED, STARTED, FINISHED, TRAINED, DISCARDED, CUT, VIOLATIONS, SUM_FINISH,
 SUM_START, SUM_MOVED, HOLE, OPEN_PLACE) = range(28)  # fmt: skip
STATE = 28

# State, doubles: clocks, then seconds by class.
(NOW, GEN, SHIFT, TRAINER_END, BUSY, RUNNING, S_GENERATING, S_TOOL, S_SYNC, S_IDLE, T_IDLE, T_TRAINING, T_DRAINING,
 T_SYNCING) = range(14)  # fmt: skip
CLOCKS = 14

INFINITY = float("inf")

# Compiled a second time with True, for scenarios that are `plain` (see `state`): what only others need is left out.
PLAIN = False


def advance(
    par: Any, horizon: float, st: Any, clk: Any, rate: Any,
    first: int, turns: Any, draws: Any, work_s: Any, sync_s: Any,
    gkey: Any, gitem: Any, tkey: Any, titem: Any,
    slot_member: Any, slot_group: Any, slot_place: Any, slot_last: Any, slot_draws: Any, free_slots: Any,
    group_first: Any, group_left: Any, group_oldest: Any, member_version: Any, member_taken: Any, free_groups: Any,
    queue: Any, queue_key: Any, held: Any,
    taken_s: Any, ended_s: Any, left: Any,
    at_finish: Any, at_start: Any, at_moved: Any,
    warm_st: Any, warm_clk: Any, warm_finish: Any, warm_start: Any, warm_moved: Any,
    rec_start: Any, rec_end: Any, rec_worker: Any, rec_version: Any, rec_update: Any,
) -> int:  # fmt: skip
    """Goes on until the end, or until it needs something; returns which.

    Args:
        par, st, clk: parameters, whole state and clocks, by the places named above.
        horizon: seconds; infinite where the count of updates ends it.
        rate: speed of generation by running sequences, 0 to all workers.
        first, turns, draws: the draws at hand: of trajectories `first` and up, turns of each and STRIDE seconds each
            (generation and tool in turn).
        work_s, sync_s: seconds of each update's work and of its weight sync.
        gkey, gitem, tkey, titem: heaps of what generates (by `gen`) and what is in a tool (by time), of slots.
        slot_*: by worker: member (group x GROUP + place), group, place and last place in its draws, draws, start.
        group_*, member_*: by group slot, and by member of one.
        queue, queue_key, held: finished groups (a ring, or a heap by group), and those picked for the next batch.
        taken_s, ended_s, left: of each update: when its batch was taken, when it had ended, what was left queued.
        at_*, warm_*: counts of staleness by value, the last bin for all above; copies of all at the warm-up's end.
        rec_*: of the first RECORDED trajectories.
    """
    workers, batch, bins = par[WORKERS], par[BATCH], par[BINS]
    rule, bound, keeps, recorded = par[RULE], par[MAX_STALENESS], par[KEEPS], par[RECORDED]
    g, flat, stride, by_start = (1, 1, 1, 0) if PLAIN else (par[GROUP], par[FLAT], par[STRIDE], par[BY_START])
    batch_starts = par[STARTED_BATCH] * g
    per_step = batch * g
    drawn_to = first + len(turns)
    updates = len(work_s)
    nxt, live, ng, nt, limit = st[NEXT], st[LIVE], st[GENERATING], st[IN_TOOL], st[LIMIT]
    trainer, taken, visible, ended = st[TRAINER], st[TAKEN], st[VISIBLE], st[ENDED]
    nheld, nqueue, head, nfree = st[HELD], st[QUEUED], st[HEAD], st[FREE_GROUPS]
    nslots, open_group, paused = st[FREE_SLOTS], st[OPEN_GROUP], st[PAUSED]
    now, gen, shift, trainer_end = clk[NOW], clk[GEN], clk[SHIFT], clk[TRAINER_END]
    busy, running = clk[BUSY], clk[RUNNING]
    s_generating, s_tool, s_sync, s_idle = clk[S_GENERATING], clk[S_TOOL], clk[S_SYNC], clk[S_IDLE]
    finished, sum_finish = st[FINISHED], st[SUM_FINISH]
    capacity = len(queue)
    # The heap's root has ended and its place is not filled yet: kept as it is when more draws are needed, so that
    # how many are drawn at a time changes nothing.
    hole = st[HOLE]
    m = st[OPEN_PLACE]  # in the group that is being started
    started, discards = st[STARTED], par[DISCARDS]
    code = -1
    while code < 0:
        # 1. Starts. A worker that became free goes on at once: before the trainer takes what it finished.
        while live < workers and nxt < limit:
            place = nxt - first
            if nxt >= drawn_to or place < 0:
                code = NEED_DRAWS
                break
            if m == 0:
                if nfree == 0:
                    code = NEED_GROUPS
                    break
                nfree -= 1
                open_group = free_groups[nfree]
                group_left[open_group] = g
                group_first[open_group] = nxt
                group_oldest[open_group] = visible
            member = open_group * g + m
            member_version[member] = visible
            member_taken[member] = taken
            if hole:
                slot = gitem[0]
            else:
                nslots -= 1
                slot = free_slots[nslots]
            slot_member[slot] = member
            slot_group[slot] = open_group
            if stride > 1:
                slot_place[slot] = 0
                last = 2 * turns[place] - 2
                slot_last[slot] = last
                for one in range(last + 1):
                    slot_draws[slot * stride + one] = draws[place * stride + one]
            key = gen + draws[place * stride]
            if nxt < recorded:
                rec_start[nxt] = now
                rec_worker[nxt] = slot
                rec_version[nxt] = visible
            if hole:
                gkey[0] = key
                ng += 1
                sift_down(gkey, gitem, ng)
                hole = 0
            else:
                gkey[ng] = key
                gitem[ng] = slot
                ng += 1
                sift_up(gkey, gitem, ng - 1)
            live += 1
            nxt += 1
            m += 1
            if m == g:
                m = 0
            started += 1
        if code >= 0:
            break
        if hole:
            free_slots[nslots] = gitem[0]
            nslots += 1
            if ng > 0:
                gkey[0] = gkey[ng]
                gitem[0] = gitem[ng]
                sift_down(gkey, gitem, ng)
            hole = 0

        # 2. The trainer takes a batch: what is finished, but for what is too old.
        if trainer == IDLE and nqueue + nheld >= batch:
            if taken >= updates:
                code = NEED_UPDATES
                break
            while nheld < batch and nqueue > 0:
                nqueue -= 1
                if by_start:
                    group = queue[0]
                    queue[0] = queue[nqueue]
                    queue_key[0] = queue_key[nqueue]
                    sift_down(queue_key, queue, nqueue)
                else:
                    group = queue[head]
                    head += 1
                    if head == capacity:
                        head = 0
                if discards and taken - group_oldest[group] > bound:
                    st[DISCARDED] += g
                    free_groups[nfree] = group
                    nfree += 1
                else:
                    held[nheld] = group
                    nheld += 1
            if nheld == batch:
                sum_start = 0
                sum_moved = 0
                for one in range(batch):
                    group = held[one]
                    for one_of in range(g):
                        member = group * g + one_of
                        age = taken - member_version[member]
                        sum_start += age
                        at_start[min(age, bins - 1)] += 1
                        if bound >= 0 and age > bound:
                            st[VIOLATIONS] += 1
                        age = taken - member_taken[member]
                        sum_moved += age
                        at_moved[min(age, bins - 1)] += 1
                        number = group_first[group] + one_of
                        if number < recorded:
                            rec_update[number] = taken
                    free_groups[nfree] = group
                    nfree += 1
                st[SUM_START] += sum_start
                st[SUM_MOVED] += sum_moved
                nheld = 0
                taken_s[taken] = now
                left[taken] = nqueue
                taken += 1
                st[TRAINED] += per_step
                if rule <= ONE_STEP_OFF:
                    # What was started beyond the batch is cut, and what was not started never is.
                    begun = batch_starts - (taken * batch_starts - nxt)
                    if begun > per_step:
                        st[CUT] += begun - per_step
                        for one in range(len(free_groups)):
                            free_groups[one] = one
                        nfree = len(free_groups)
                        for one in range(workers):
                            free_slots[one] = one
                        nslots = workers
                        nqueue = 0
                        head = 0
                        live = 0
                        ng = 0
                        nt = 0
                    nxt = taken * batch_starts
                    m = 0
                if rule == ONE_STEP_OFF and st[TRAINED_VERSION] > visible:
                    trainer = SYNCING  # the update before this one reaches the engines only now
                    trainer_end = now + sync_s[taken - 2]
                else:
                    trainer = TRAINING
                    trainer_end = now + work_s[taken - 1]
                    if rule == ONE_STEP_OFF:
                        limit = (taken + 1) * batch_starts
                        continue
        # 3. The next event: of those at one instant, ends of turns first, then of tools, then the trainer's.
        soonest = INFINITY
        kind = 0
        if ng > 0 and not paused:
            if flat:
                soonest = gkey[0] + shift
            else:
                soonest = now + (gkey[0] - gen) / rate[ng]
                if soonest < now:
                    soonest = now
            kind = 1
        if nt > 0 and tkey[0] < soonest:
            soonest = tkey[0]
            kind = 2
        if trainer & 1 and trainer_end < soonest:  # TRAINING, SYNCING
            soonest = trainer_end
            kind = 3
        if kind == 0:
            code = STUCK
            break
        if soonest > horizon:
            soonest = horizon
            kind = 0
        passed = soonest - now
        busy += live * passed
        if trainer == SYNCING and not keeps:
            s_sync += passed
        elif ng > 0:
            s_generating += passed
            running += ng * passed
        elif nt > 0:
            s_tool += passed
        else:
            s_idle += passed
        if not flat and not paused:
            gen += passed * rate[ng]
        now = soonest
        if flat and not paused:
            gen = now - shift
        if kind == 0:
            code = DONE
        elif kind == 1:
            gen = gkey[0]
            slot = gitem[0]
            ng -= 1
            if stride > 1 and slot_place[slot] < slot_last[slot]:
                place = slot_place[slot] + 1
                slot_place[slot] = place
                if ng > 0:
                    gkey[0] = gkey[ng]
                    gitem[0] = gitem[ng]
                    sift_down(gkey, gitem, ng)
                tkey[nt] = now + slot_draws[slot * stride + place]
                titem[nt] = slot
                nt += 1
                sift_up(tkey, titem, nt - 1)
            else:
                live -= 1
                hole = 1
                finished += 1
                member = slot_member[slot]
                group = slot_group[slot]
                age = visible - member_version[member]
                sum_finish += age
                at_finish[min(age, bins - 1)] += 1
                number = group_first[group] + member - group * g
                if number < recorded:
                    rec_end[number] = now
                group_left[group] -= 1
                if group_left[group] == 0:
                    if by_start:
                        queue[nqueue] = group
                        queue_key[nqueue] = group_first[group]
                        nqueue += 1
                        sift_up(queue_key, queue, nqueue - 1)
                    else:
                        place = head + nqueue
                        queue[place if place < capacity else place - capacity] = group
                        nqueue += 1
        elif kind == 2:
            slot = titem[0]
            nt -= 1
            if nt > 0:
                tkey[0] = tkey[nt]
                titem[0] = titem[nt]
                sift_down(tkey, titem, nt)
            place = slot_place[slot] + 1
            slot_place[slot] = place
            gkey[ng] = gen + slot_draws[slot * stride + place]
            gitem[ng] = slot
            ng += 1
            sift_up(gkey, gitem, ng - 1)
        over = 0
        if kind == 3 and trainer == TRAINING:
            clk[T_TRAINING] += work_s[taken - 1]
            st[TRAINED_VERSION] = taken
            if rule == ONE_STEP_OFF:
                trainer = IDLE
                over = 1
            else:
                trainer = DRAINING
                if par[WAITS]:
                    limit = nxt  # nothing more is admitted
                    clk[T_DRAINING] -= now
        elif kind == 3:
            clk[T_SYNCING] += sync_s[st[TRAINED_VERSION] - 1]
            visible = st[TRAINED_VERSION]
            if paused:
                paused = 0
                shift = now - gen
            if rule == ONE_STEP_OFF:
                trainer = TRAINING
                trainer_end = now + work_s[taken - 1]
                limit = (taken + 1) * batch_starts
            else:
                trainer = IDLE
                over = 1
                if rule == BATCHES:
                    limit = (visible + 1) * batch_starts
                elif rule == ADMISSION:
                    limit = (bound + visible + 1) * per_step
                else:
                    limit = 1 << 62
        if trainer == DRAINING and (not par[WAITS] or live == 0):
            if par[WAITS]:
                clk[T_DRAINING] += now
            trainer = SYNCING
            trainer_end = now + sync_s[taken - 1]
            if not keeps:
                paused = 1
        if over:
            ended_s[ended] = now
            ended += 1
            if ended == par[LAST_UPDATE]:
                code = DONE
        if (over and ended == par[WARMUP]) or code >= 0:
            # What is kept in local names goes where it is read.
            st[FINISHED], st[SUM_FINISH], st[STARTED] = finished, sum_finish, started
            st[ENDED], st[TAKEN] = ended, taken
            clk[NOW], clk[BUSY], clk[RUNNING] = now, busy, running
            clk[S_GENERATING], clk[S_TOOL], clk[S_SYNC], clk[S_IDLE] = s_generating, s_tool, s_sync, s_idle
            if over and ended == par[WARMUP]:
                keep(st, warm_st)
                keep(clk, warm_clk)
                keep(at_finish, warm_finish)
                keep(at_start, warm_start)
                keep(at_moved, warm_moved)
    st[NEXT], st[LIVE], st[GENERATING], st[IN_TOOL], st[LIMIT] = nxt, live, ng, nt, limit
    st[TRAINER], st[TAKEN], st[VISIBLE], st[ENDED] = trainer, taken, visible, ended
    st[HELD], st[QUEUED], st[HEAD], st[FREE_GROUPS] = nheld, nqueue, head, nfree
    st[FREE_SLOTS], st[OPEN_GROUP], st[PAUSED], st[HOLE] = nslots, open_group, paused, hole
    st[OPEN_PLACE], st[STARTED] = m, started
    st[FINISHED], st[SUM_FINISH] = finished, sum_finish
    clk[NOW], clk[GEN], clk[SHIFT], clk[TRAINER_END] = now, gen, shift, trainer_end
    clk[BUSY], clk[RUNNING] = busy, running
    clk[S_GENERATING], clk[S_TOOL], clk[S_SYNC], clk[S_IDLE] = s_generating, s_tool, s_sync, s_idle
    return code
