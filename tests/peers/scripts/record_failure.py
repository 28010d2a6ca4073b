"""A script that reports its exception as torch's launcher wants it: through error.json."""

import os

from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    if os.environ["RANK"] == "1":
        raise RuntimeError("loss is not finite at step 17")
    import torch.distributed as dist
    dist.init_process_group("gloo")
    dist.barrier()  # never complete: rank 1 is dead


if __name__ == "__main__":
    main()
