"""Metrics pages as engines of several versions serve them: lines as those versions write them, shortened."""

# vLLM 0.6 (V0 engine): `gpu_cache_usage_perc`, counters that end in `_total`.
VLLM_0_6 = """\
# HELP python_gc_objects_collected_total Objects collected during gc
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{generation="0"} 7120.0
# HELP vllm:num_requests_running Number of requests currently running on GPU.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 8.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{model_name="m"} 2.0
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="m"} 0.25
# TYPE vllm:gpu_prefix_cache_hit_rate gauge
vllm:gpu_prefix_cache_hit_rate{model_name="m"} -1.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{model_name="m"} 3.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{model_name="m"} 1.5033e+04
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{model_name="m"} 5011.0
vllm:time_to_first_token_seconds_bucket{le="0.001",model_name="m"} 0.0
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 12.0
"""

# vLLM 0.8 to 0.9 (V1): prefix cache counters under `gpu_`, an `engine` label.
VLLM_0_9 = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.125
vllm:gpu_prefix_cache_queries_total{engine="0",model_name="m"} 1000.0
vllm:gpu_prefix_cache_queries_created{engine="0",model_name="m"} 1.7e+09
vllm:gpu_prefix_cache_hits_total{engine="0",model_name="m"} 640.0
vllm:num_preemptions_total{engine="0",model_name="m"} 0.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1000.0
vllm:generation_tokens_total{engine="0",model_name="m"} 300.0
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e+09
"""

# vLLM 0.10 and on: `kv_cache_usage_perc`; here two data-parallel engines behind one page.
VLLM_0_30 = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="/models/a \\"b\\" {c}"} 3.0
vllm:num_requests_running{engine="1",model_name="/models/a \\"b\\" {c}"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:num_requests_waiting{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.01
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.03
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 700.0
vllm:prefix_cache_queries_total{engine="1",model_name="m"} 300.0
vllm:external_prefix_cache_queries_total{engine="0",model_name="m"} 5.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 512.0
vllm:prefix_cache_hits_total{engine="1",model_name="m"} 0.0
vllm:num_preemptions_total{engine="0",model_name="m"} 0.0
vllm:num_preemptions_total{engine="1",model_name="m"} 0.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 700.0
vllm:prompt_tokens_total{engine="1",model_name="m"} 300.0
vllm:prompt_tokens_cached_total{engine="0",model_name="m"} 512.0
vllm:generation_tokens_total{engine="0",model_name="m"} 90.0
vllm:generation_tokens_total{engine="1",model_name="m"} 60.0
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="m"} 2.0
"""

# SGLang 0.4: no counter of cached tokens by source, gauges of the one scheduler that tells.
SGLANG_0_4 = """\
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="m"} 8.0e+06
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{model_name="m"} 7557572.0
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="m"} 0.28
sglang:cache_hit_rate{model_name="m"} 0.0075
sglang:num_running_reqs{model_name="m"} 162.0
sglang:num_queue_reqs{model_name="m"} 2826.0
"""

# SGLang 0.5: labels of the rank that tells (every rank with enable_metrics_for_all_schedulers), cached by source.
SGLANG_0_5 = """\
sglang:prompt_tokens_total{engine_type="unified",model_name="m"} 1000.0
sglang:generation_tokens_total{engine_type="unified",model_name="m"} 200.0
sglang:cached_tokens_total{cache_source="device",engine_type="unified",model_name="m"} 600.0
sglang:cached_tokens_total{cache_source="host",engine_type="unified",model_name="m"} 40.0
sglang:num_running_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 5.0
sglang:num_running_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="1"} 5.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 1.0
sglang:token_usage{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.5
sglang:num_retracted_requests_total{model_name="m",pp_rank="0",tp_rank="0"} 2.0
sglang:num_retracted_reqs{model_name="m",pp_rank="0",tp_rank="0"} 0.0
"""

# A vLLM server with disable_log_stats: its page is there, and says nothing of the engine.
VLLM_WITHOUT_STATISTICS = """\
# TYPE python_info gauge
python_info{implementation="CPython",major="3",minor="11"} 1.0
# TYPE http_requests_total counter
http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 12.0
"""


def vllm_page(running: float, generated: float, waiting: float = 0.0, prompt: float = 0.0) -> str:
    """A page with these numbers."""
    label = '{engine="0",model_name="m"}'
    return (
        f"vllm:num_requests_running{label} {running}\n"
        f"vllm:num_requests_waiting{label} {waiting}\n"
        f"vllm:kv_cache_usage_perc{label} 0.5\n"
        f"vllm:prompt_tokens_total{label} {prompt}\n"
        f"vllm:generation_tokens_total{label} {generated}\n"
    )
