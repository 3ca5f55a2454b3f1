"""Small studies for tests."""

SMALL = """
title = "Small"
question = "Does it scale?"
assumptions = ["All is well."]

[defaults]
models = ["llama-2-7b"]
clusters = ["dgx-h100"]
stacks = ["llm-foundry"]

[[experiment]]
id = "weak"
title = "1. Weak scaling"
sizes = [128, 2048]
strategies = ["fsdp", "fsdp-tp2"]
[[experiment.figures]]
y = ["tokens_per_second_per_accelerator", "mfu"]
caption = "Throughput <against> size."
[[experiment.published]]
metric = "mfu"
value = 0.4
at = {accelerators = 128}
label = "published MFU"
source = "a paper & its table"
[[experiment.published]]
metric = "tokens_per_second_per_accelerator"
value = 0.5
at = {accelerators = 2048}
relative_to = {accelerators = 128, strategy = "fsdp"}
label = "half"
source = "a paper"
[[experiment.claims]]
statement = "It loses 37 %"
source = "arXiv 2411.13055"
measure = "change"
metric = "tokens_per_second_per_accelerator"
where = {strategy = "fsdp"}
first = {accelerators = 128}
second = {accelerators = 2048}
published = -0.3722
why = "Because."

[[experiment]]
id = "rings"
title = "2. Rings"
kind = "collectives"
sizes = [64, 512]
messages = ["1MiB", "64MiB"]
[[experiment.figures]]
x = "nodes"
y = ["bus_bandwidth"]
facet = "message_bytes"

[[experiment]]
id = "buy"
title = "3. What to buy"
kind = "sensitivity"
sizes = [128]
[[experiment.figures]]
kind = "bars"
x = "change"
y = ["gain"]
"""

CASES = """
title = "Cases"

[[experiment]]
id = "growth"
title = "1. Growth"
models = ["llama-2-7b"]
clusters = ["dgx-h100"]
stacks = ["pytorch"]
sizes = [128, 1024, 2048]
[[experiment.cases]]
name = "FSDP alone"
[[experiment.cases]]
name = "swept"
set = {strategies = ["fsdp", "fsdp-mb2"], tp = [1, 2], best_over = ["strategy", "tp"]}
[[experiment.cases]]
name = "fixed batch"
set = {scaling = "strong", batch = 2048, strategies = ["best"]}
[[experiment.figures]]
y = ["marginal_return", "tokens_per_second_per_accelerator"]
series = ["case"]

[[experiment]]
id = "spread"
title = "2. Spread"
models = ["llama-2-7b"]
clusters = ["dgx-h100"]
stacks = ["pytorch"]
sizes = [128, 2048]
[[experiment.variants]]
name = "LL128"
set = {"fabric.ll128" = true}
[[experiment.variants]]
name = "Simple"
[[experiment.variants]]
name = "Simple, latency x 1.4"
set = {"fabric.latency_factor" = 1.4}
[[experiment.figures]]
y = ["tokens_per_second_per_accelerator", "mfu"]
series = ["variant"]
band = {variant = ["LL128", "Simple, latency x 1.4"]}
"""
