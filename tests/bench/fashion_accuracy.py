#!/usr/bin/python3
"""deploy/examples/fashion_mnist.yaml: top-1 on the 10 000 test images and the seconds of training.

Formulas: report.json's metrics.test_top1; goodput.seconds_training.
"""

import sys

import workbench as wb


def measure():
    wb.need(wb.BIN / "trainctl")
    wb.need_quiet_machine()
    table = wb.Table()
    with wb.scratch() as folder:
        report, _ = wb.run_job(folder, "--checkpoint-dir", folder / "checkpoints",
                               wb.EXAMPLES / "fashion_mnist.yaml")
    top1, seconds = report["metrics"]["test_top1"], report["goodput"]["seconds_training"]
    table.add("Fashion-MNIST, top-1 on the test images", f"{100 * top1:.2f} %", must=">= 89 %", holds=top1 >= 0.89)
    table.add("  seconds of training", f"{seconds:.1f} s", must="<= 45 s", holds=seconds <= 45)
    return table


if __name__ == "__main__":
    sys.exit(wb.main(measure))
