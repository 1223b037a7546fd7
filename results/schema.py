"""Every table that a run is stored in, its columns declared as data: name, type, unit, whether unknown is possible.

Units are in the column's name (`_ns _s _tokens _bytes _watts _joules _ratio`) and again in the field's metadata.
Times are nanoseconds of the recording host's monotonic clock. Unknown is null, never 0. JSON columns hold one object.
"""

from collections.abc import Mapping

import pyarrow as pa

from harness.protocol.errors import SpecError
from results.columns import BOOL, FLOAT, FLOATS, INT, TEXT, TEXTS, Column
from results.columns import nullable as _n
from results.columns import required as _c

SCHEMA_VERSION = 2
TABLE_KEY = b"bench.table"
VERSION_KEY = b"bench.schema_version"
RUN_KEY = b"bench.run_id"

_HOST = _c("host", TEXT, "host that recorded it; times of one host share one clock")
_PID = _c("pid", INT, "process that recorded it")
_ROLE = _n("role", TEXT, "controller | train | rollout | engine | sampler | supervisor")
_START = _c("start_ns", INT, "begin", unit="ns")
_END = _c("end_ns", INT, "end", unit="ns")
_POOL = _n("pool", TEXT, "train | rollout | both")
_UNIT = _n("unit", TEXT, "smallest GPU set that worked as one, as the recorder named it")
_STEP = _n("step", INT, "trainer step it belongs to")
_TRAJECTORY = _c("trajectory_id", TEXT, "trajectory it belongs to")
_TURN = _n("turn", INT, "turn within the trajectory, as the episode numbered it")

COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "runs": (
        _c("run_id", TEXT, "name of the run"),
        _c("framework", TEXT, "adapter that ran"),
        _n("framework_version", TEXT, "its version"),
        _c("placement", TEXT, "colocated | disaggregated | async"),
        _c("work_digest", TEXT, "names the work offered"),
        _c("spec_digest", TEXT, "names the work and the system under test"),
        _c("spec_json", TEXT, "the whole spec"),
        _c("meta_json", TEXT, "the whole meta.json as it was read"),
        _n("commit", TEXT, "commit of bench"),
        _n("dirty", BOOL, "the working tree differed from the commit"),
        _n("bench_version", TEXT, "version of bench"),
        _n("machine", TEXT, "host the harness ran on"),
        _n("gpu_name", TEXT, "model of the GPUs; several models are joined by ' + '"),
        _c("gpus", INT, "GPUs of the whole run, each counted once", unit="GPU"),
        _c("device", TEXT, "cuda | cpu"),
        _n("started_utc", TEXT, "start, ISO 8601"),
        _n("ended_utc", TEXT, "end, ISO 8601"),
        _n("wall_s", FLOAT, "wall time of the run", unit="s"),
        _n("status", TEXT, "running | finished | failed | interrupted | timeout | stalled"),
        _n("reason", TEXT, "why it ended so"),
        _n("exit_code", INT, "exit code of bench run"),
    ),
    "processes": (
        _c("file", TEXT, "events file"),
        _c("host", TEXT, "host"),
        _c("pid", INT, "process id"),
        _ROLE,
        _n("protocol", INT, "protocol version it spoke; null: its first line was lost"),
        _n("run_id", TEXT, "run it said it belongs to"),
        _n("pool", TEXT, "pool its GPUs belong to"),
        _c("gpu_uuids", TEXTS, "GPUs it used"),
        _c("versions_json", TEXT, "versions of the packages it runs"),
        _n("wall_ns", INT, "wall clock at its first line", unit="ns"),
        _n("mono_ns", INT, "monotonic clock at its first line", unit="ns"),
        _n("wall_minus_mono_ns", INT, "wall_ns - mono_ns: anchors the host's monotonic clock to wall time", unit="ns"),
        _n("first_ns", INT, "earliest time of its events", unit="ns"),
        _n("last_ns", INT, "latest time of its events", unit="ns"),
        _c("ended", BOOL, "it said Bye"),
        _n("bye_ns", INT, "monotonic clock at its Bye", unit="ns"),
        _n("bye_wall_ns", INT, "wall clock at its Bye", unit="ns"),
        _c("events", INT, "events read from it", unit="event"),
        _n("events_written", INT, "events it said it wrote before its Bye", unit="event"),
        _n("events_lost", INT, "events it said it could not write", unit="event"),
        _n("recorder_ns", INT, "the recorder's own cost up to its Bye", unit="ns"),
        _c("damaged_lines", INT, "lines of its part of the file that could not be read", unit="line"),
    ),
    "spans": (
        _HOST,
        _PID,
        _ROLE,
        _n("phase", TEXT, "phase of the vocabulary; null for a container"),
        _c("native_name", TEXT, "the framework's own name"),
        _POOL,
        _UNIT,
        _STEP,
        _n("trajectory_id", TEXT, "trajectory it belongs to"),
        _TURN,
        _c("container", BOOL, "groups other spans and covers no time"),
        _START,
        _END,
        _n("open_id", INT, "id of the Open it closed, within its process"),
        _c("attributes_json", TEXT, "attributes, but for those that turns, tool_calls or weight_syncs hold"),
    ),
    "steps": (
        _HOST,
        _PID,
        _c("step", INT, "trainer step"),
        _c("policy_version", INT, "version the batch trained into"),
        _c("trained_at", INT, "version the batch trained on: policy_version - 1"),
        _START,
        _END,
        _c("trajectory_ids", TEXTS, "trajectories it trained on"),
        _c("dropped_ids", TEXTS, "trajectories it took and did not train on"),
        _n("trajectories", INT, "trajectories it trained on; null: an imported log does not say", unit="trajectory"),
        _n("loss_tokens", INT, "sum of the trainer's loss mask", unit="token"),
        _n("processed_tokens", INT, "tokens through the training forward, no padding", unit="token"),
        _n("reward_mean", FLOAT, "mean reward of the batch"),
        _n("grad_norm", FLOAT, "norm of the gradient"),
        _n("recorder_ns", INT, "the recorder's own cost so far in this process", unit="ns"),
    ),
    "trajectories": (
        _HOST,
        _PID,
        _c("trajectory_id", TEXT, "the attempt's name"),
        _n("group_id", TEXT, "trajectories of one prompt"),
        _n("prompt", INT, "row of the data set"),
        _n("sample", INT, "repetition within the group"),
        _n("attempt", INT, "0, then 1 and on for retries"),
        _c("status", TEXT, "ok | failed | timeout | cancelled | open (started, never closed)"),
        _START,
        _n("end_ns", INT, "end; null while open", unit="ns"),
        _c("turns", INT, "replies that came back", unit="turn"),
        _c("tool_calls", INT, "tool calls made", unit="call"),
        _c("tool_ns", INT, "time inside tools", unit="ns"),
        _n("prompt_tokens", INT, "tokens of the first prompt", unit="token"),
        _n("generated_tokens", INT, "ids the engine returned", unit="token"),
        _n("observation_tokens", INT, "tokens of the tools' answers", unit="token"),
        _n("version_scheduled", INT, "policy version when it was scheduled"),
        _n("version_first", INT, "policy version at its first generated token"),
        _n("version_last", INT, "policy version at its last generated token"),
        _n("reward", FLOAT, "reward"),
        _n("message", TEXT, "why, when the status is not ok"),
        _n("loss_tokens", INT, "generated tokens that its loss mask has; 0 unless ok", unit="token"),
        _n("sequence_tokens", INT, "prompt and response as they go to the trainer", unit="token"),
        _n("step_consumed", INT, "first step that trained on it"),
        _n("step_dropped", INT, "step that took it and did not train on it"),
        _n("version_trained", INT, "trained_at of the step that consumed it"),
        _n("consumed_ns", INT, "end of the update that trained on it", unit="ns"),
        _n("planned_turns", INT, "turns of its plan", unit="turn"),
        _n("planned_tool_calls", INT, "tool calls of its plan", unit="call"),
        _n("planned_generated_tokens", INT, "generated tokens of its plan", unit="token"),
        _n("planned_observation_tokens", INT, "observation tokens of its plan", unit="token"),
        _n("planned_tool_ns", INT, "tool time of its plan", unit="ns"),
    ),
    "turns": (
        _HOST,
        _PID,
        _TRAJECTORY,
        _TURN,
        _n("engine", TEXT, "address of the server that answered"),
        _POOL,
        _UNIT,
        _n("submitted_ns", INT, "handed to the framework's client", unit="ns"),
        _START,
        _END,
        _n("prompt_tokens", INT, "tokens sent", unit="token"),
        _n(
            "generated_tokens", INT, "ids the engine returned; null: no reply came (stop_reason says why)", unit="token"
        ),
        _n("version_start", INT, "policy version when the turn began"),
        _n("version_end", INT, "policy version when the turn ended"),
        _n("stop_reason", TEXT, "why generation stopped"),
        _n("cache_break", BOOL, "the ids sent did not begin with those of the turn before"),
    ),
    "tool_calls": (
        _HOST,
        _PID,
        _TRAJECTORY,
        _TURN,
        _n("tool", TEXT, "name of the tool"),
        _n("call", INT, "number of the call within its trajectory, from 0"),
        _n("argument", TEXT, "query or address, cut at 500 characters"),
        _START,
        _END,
        _n("planned_ns", INT, "latency that was imposed; null: the tool took what it took", unit="ns"),
        _n("status", TEXT, "ok | timeout | error | refused | empty | not_found | cancelled"),
        _n("observation_tokens", INT, "tokens of the answer", unit="token"),
        _n("observation_bytes", INT, "bytes of the answer", unit="byte"),
        _n("http_status", INT, "HTTP status of the page or the provider"),
        _n("wire_bytes", INT, "bytes of the page or the provider's answer", unit="byte"),
        _n("served_ns", INT, "time inside the tool server", unit="ns"),
        _n("detail", TEXT, "why the status is not ok"),
    ),
    "weight_syncs": (
        _HOST,
        _PID,
        _STEP,
        _c("version", INT, "version that became visible when it ended"),
        _n("engine", TEXT, "server it brought the weights to"),
        _POOL,
        _UNIT,
        _START,
        _END,
        _n("pause_ns", INT, "from the pause to the transfer", unit="ns"),
        _n("transfer_ns", INT, "transfer", unit="ns"),
        _n("resume_ns", INT, "from the transfer to the resume", unit="ns"),
        _n("bytes", INT, "bytes moved", unit="byte"),
    ),
    "samples": (
        _c("host", TEXT, "host"),
        _n("gpu", TEXT, "GPU's UUID; null: a reading of the host"),
        _c("mono_ns", INT, "middle of the call that read it", unit="ns"),
        _n("uncertainty_ns", INT, "half the duration of the call", unit="ns"),
        _n("util_ratio", FLOAT, "NVML utilisation: share of the time a kernel ran", unit="ratio"),
        _n("memory_used_bytes", INT, "GPU memory in use", unit="byte"),
        _n("memory_total_bytes", INT, "GPU memory", unit="byte"),
        _n("power_instant_watts", FLOAT, "instant power", unit="W"),
        _n("power_average_watts", FLOAT, "power, averaged by the driver", unit="W"),
        _n("energy_joules", FLOAT, "energy counter since the driver was loaded", unit="J"),
        _n("power_limit_watts", FLOAT, "enforced power limit", unit="W"),
        _n("sm_clock_hz", INT, "SM clock", unit="Hz"),
        _n("memory_clock_hz", INT, "memory clock", unit="Hz"),
        _n("temperature_celsius", FLOAT, "temperature", unit="°C"),
        _n("throttle_reasons", INT, "bit mask of NVML's clock event reasons"),
        _n("pcie_tx_bytes_per_s", FLOAT, "PCIe, sent", unit="byte/s"),
        _n("pcie_rx_bytes_per_s", FLOAT, "PCIe, received", unit="byte/s"),
        _n("nvlink_tx_bytes", INT, "NVLink counter, sent", unit="byte"),
        _n("nvlink_rx_bytes", INT, "NVLink counter, received", unit="byte"),
        _n("cpu_ratio", FLOAT, "share of all cores in use", unit="ratio"),
        _n("host_memory_used_bytes", INT, "host memory in use", unit="byte"),
        _n("net_rx_bytes", INT, "network counter, received", unit="byte"),
        _n("net_tx_bytes", INT, "network counter, sent", unit="byte"),
        _n("ecc_corrected_errors", INT, "corrected memory errors since the driver was loaded", unit="error"),
        _n("ecc_uncorrected_errors", INT, "uncorrected memory errors since the driver was loaded", unit="error"),
        _n("dcgm_sm_active_ratio", FLOAT, "DCGM: share of cycles an SM had a warp, mean over the SMs", unit="ratio"),
        _n("dcgm_sm_occupancy_ratio", FLOAT, "DCGM: resident warps as a share of the most possible", unit="ratio"),
        _n("dcgm_tensor_active_ratio", FLOAT, "DCGM: share of cycles the tensor pipe was busy", unit="ratio"),
        _n("dcgm_dram_active_ratio", FLOAT, "DCGM: share of cycles the memory moved data", unit="ratio"),
        _n("dcgm_power_instant_watts", FLOAT, "DCGM: instant power", unit="W"),
        _n("dcgm_pcie_tx_bytes_per_s", FLOAT, "DCGM: PCIe, sent, headers included", unit="byte/s"),
        _n("dcgm_pcie_rx_bytes_per_s", FLOAT, "DCGM: PCIe, received, headers included", unit="byte/s"),
        _n("dcgm_nvlink_tx_bytes_per_s", FLOAT, "DCGM: NVLink, sent, no headers", unit="byte/s"),
        _n("dcgm_nvlink_rx_bytes_per_s", FLOAT, "DCGM: NVLink, received, no headers", unit="byte/s"),
    ),
    "hosts": (
        _c("host", TEXT, "host; all times of the tables are on the controller's axis where its offset is known"),
        _c("reference", BOOL, "the controller's host, whose clock the axis is"),
        _n("offset_ns", INT, "its clock minus the controller's, middle of the run; null: not compared", unit="ns"),
        _n("uncertainty_ns", INT, "no time of it is off by more, at any moment of the run", unit="ns"),
        _n("round_trip_ns", INT, "quickest way there and back", unit="ns"),
        _n("drift_ppm", FLOAT, "rate of its clock against the controller's", unit="ppm"),
        _n("drift_uncertainty_ppm", FLOAT, "uncertainty of that rate", unit="ppm"),
        _c("comparisons", INT, "times that the clocks were compared", unit="comparison"),
        _n("steady", BOOL, "the comparisons agree under the drift that clocks may have"),
        _c("samples", INT, "rows of its sampler", unit="row"),
        _n("first_ns", INT, "first instant it recorded", unit="ns"),
        _n("last_ns", INT, "last instant it recorded", unit="ns"),
        _c("lost", BOOL, "it did not answer at the end: what it recorded last is not here"),
        _n("reason", TEXT, "why it was lost, or not compared"),
    ),
    "engine_samples": (
        _c("host", TEXT, "host that asked"),
        _c("engine", TEXT, "address of the engine, as turns name it"),
        _c("mono_ns", INT, "middle of the call that read it", unit="ns"),
        _c("uncertainty_ns", INT, "half the duration of the call", unit="ns"),
        _n("family", TEXT, "vllm | sglang; null: the call failed"),
        _n("running_requests", FLOAT, "requests that the engine runs", unit="request"),
        _n("waiting_requests", FLOAT, "requests in the engine's own queue", unit="request"),
        _n("kv_cache_ratio", FLOAT, "share of the KV cache in use", unit="ratio"),
        _n("prefix_query_tokens", FLOAT, "counter: tokens looked up in the prefix cache", unit="token"),
        _n("prefix_hit_tokens", FLOAT, "counter: tokens found in the prefix cache", unit="token"),
        _n("prompt_tokens", FLOAT, "counter: prompt tokens taken, cached ones too", unit="token"),
        _n("generation_tokens", FLOAT, "counter: generated tokens", unit="token"),
        _n("preemptions", FLOAT, "counter: requests put back for want of KV cache", unit="request"),
        _n("reason", TEXT, "why a reading is null"),
    ),
    "gates": (
        _HOST,
        _PID,
        _c("mono_ns", INT, "when", unit="ns"),
        _c("open", BOOL, "admission of new trajectories opened (else: closed)"),
        _c("why", TEXT, "the framework's reason"),
        _n("in_flight", INT, "trajectories in flight", unit="trajectory"),
        _n("cap", INT, "most trajectories allowed in flight", unit="trajectory"),
    ),
    "probes": (
        _HOST,
        _PID,
        _c("name", TEXT, "what was probed"),
        _c("mono_ns", INT, "when", unit="ns"),
        _STEP,
        _n("value", FLOAT, "a number"),
        _n("values", FLOATS, "a short vector"),
        _c("unit", TEXT, "unit of value and values"),
        _c("labels_json", TEXT, "labels as recorded"),
    ),
    "metrics": (
        _c("metric", TEXT, "name of the computed figure"),
        _c("unit", TEXT, "its unit"),
        _n("value", FLOAT, "its value; null: unknown, and note says why"),
        _n("ci_low", FLOAT, "lower end of the interval"),
        _n("ci_high", FLOAT, "upper end of the interval"),
        _n("n", INT, "what it was computed from: how many"),
        _n("verdict", TEXT, "ok | warn | bad, where the figure has one"),
        _n("note", TEXT, "what a reader must know"),
    ),
    "gpu_energy": (
        _c("gpu", TEXT, "GPU's UUID"),
        _n("pool", TEXT, "train | rollout | both; null: not known"),
        _n("energy_joules", FLOAT, "energy in the window; null: no sensor's series is valid", unit="J"),
        _n("uncertainty_joules", FLOAT, "by how much it may be off", unit="J"),
        _n("limit_joules", FLOAT, "integral of the enforced power limit", unit="J"),
        _n("source", TEXT, "counter | instant | average"),
        _n("k_ratio", FLOAT, "counter / integral of instant power", unit="ratio"),
        _c("verdict", TEXT, "ok | warn | bad, on its sensors"),
        _c("reasons", TEXTS, "reason codes behind the verdict"),
    ),
    "class_energy": (
        _c("pool", TEXT, "train | rollout | both"),
        _c("kind", TEXT, "class (of the time account) | phase (of its class host) | attributed (parts of generating)"),
        _c("name", TEXT, "the class, the phase, or what became of the work"),
        _n("energy_joules", FLOAT, "energy of all GPUs of the pool; null: note says why", unit="J"),
        _n("uncertainty_joules", FLOAT, "by how much it may be off", unit="J"),
        _n("limit_joules", FLOAT, "integral of the enforced power limits meanwhile", unit="J"),
        _n("power_utilisation_ratio", FLOAT, "energy_joules / limit_joules", unit="ratio"),
        _n("note", TEXT, "why there is no energy: too short, or what is not known"),
    ),
    "failures": (
        _n("host", TEXT, "host that recorded it; null: found while collecting"),
        _n("pid", INT, "process that recorded it"),
        _n("mono_ns", INT, "when", unit="ns"),
        _c("boundary", TEXT, "spec | env | worker | tool | engine | recorder | telemetry | supervisor | recording"),
        _c("type", TEXT, "class of the error, or kind of the defect"),
        _c("message", TEXT, "what was wrong"),
    ),
    "opens": (
        _HOST,
        _PID,
        _ROLE,
        _c("id", INT, "id within its process"),
        _START,
        _n("phase", TEXT, "phase; null for a container or a trajectory"),
        _c("native_name", TEXT, "the framework's own name"),
        _POOL,
        _UNIT,
        _STEP,
        _n("trajectory_id", TEXT, "trajectory it belongs to"),
        _TURN,
    ),
}

TABLES: Mapping[str, pa.Schema] = {name: pa.schema([c.field for c in columns]) for name, columns in COLUMNS.items()}
SAMPLES = TABLES["samples"]


def conform(name: str, table: pa.Table, *, where: str = "") -> pa.Table:
    """`table` with exactly the columns, types and field metadata of table `name`; extra file metadata is dropped.

    Raises:
        SpecError: a column is missing, unknown, of another type, or has nulls where none are allowed.
    """
    schema = TABLES[name]
    place = where or f"table {name}"
    again = "; run `bench collect` on its run again" if where else ""
    missing = [column for column in schema.names if column not in table.column_names]
    unknown = [column for column in table.column_names if column not in schema.names]
    if missing or unknown:
        raise SpecError(f"{place}: columns missing {missing}, unknown {unknown}; run `bench collect` on its run again")
    columns = []
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            raise SpecError(f"{place}: column {field.name} has type {column.type}, it should have {field.type}{again}")
        if not field.nullable and column.null_count:
            raise SpecError(f"{place}: column {field.name} has {column.null_count} nulls, none are allowed{again}")
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def empty(name: str) -> pa.Table:
    """Table `name` without rows."""
    return TABLES[name].empty_table()


def with_metadata(name: str, table: pa.Table, run_id: str) -> pa.Table:
    """`table` conformed, with the file metadata that `results.store.read_table` asks for."""
    metadata = {TABLE_KEY: name.encode(), VERSION_KEY: str(SCHEMA_VERSION).encode(), RUN_KEY: run_id.encode()}
    return conform(name, table).replace_schema_metadata(metadata)
