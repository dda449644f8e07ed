"""What import_results.py is made of.

fields       members of a file that another program wrote, each checked; remarks on what cannot be taken
intervals    95% intervals of a mean, by Student's t
speculation  acceptance rates by this project's definition
serving      vllm bench serve, and sglang.bench_serving
aiperf       AIPerf's summary
llama_cpp    llama-bench, and responses of llama-server
formats      which format a document has
"""
