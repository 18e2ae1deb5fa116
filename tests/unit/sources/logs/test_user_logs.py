"""Logs that users have: each kind in a few lines, and what is read from it."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_text import LogText
from tests.builders.logs import read_log

BUSY = (97, 97, 0, 97, 0, 0, 97, 97)
"""What GPU 0 does in each sample, in percent; GPU 1 is at 55 % where there is one."""


@dataclass(frozen=True)
class Sample:
    """A log of eight rows of each GPU; ``began``: its first time, ``None`` if unknown."""

    text: str
    began: str | None = "2026-03-02T09:00:00"
    gpus: int = 1
    skipped: int = 0


def written(*head: str, row: str, foot: str = "") -> str:
    """A log with eight rows from a template with ``at``, ``busy`` and ``epoch``."""
    rows = [row.format(at=at, busy=busy, epoch=1_772_442_000 + at) for at, busy in enumerate(BUSY)]
    return "\n".join([*head, *rows]) + "\n" + foot


def headed(heading: str, cell: str = "{busy}", time: str = "time") -> str:
    return written(f"{time},{heading}", row="2026-03-02 09:00:0{at}," + cell)


QUERY = written(
    "timestamp, index, utilization.gpu [%], memory.used [MiB]",
    row="2026/03/02 09:00:0{at}.000, 0, {busy} %, 1200 MiB",
)
DSTAT = '"Dstat 0.8.0 CSV output"\n"Host:","n1",,,,"User:","root"\n'
GPUSTAT = "[0] NVIDIA A100 | 56°C, {busy:>3} % | 30022 / 40960 MB | bob(30000M)"
HWINFO = '"Date","Time","Core 0 Usage [%]","GPU Core Load [%]","GPU D3D Usage [%]","GPU [°C]",'
LABELS = 'GPU utilization {{gpu=""{}"", instance=""n1:9400""}}'
METRICS = "epoch,step,train_loss,DeviceStatsMonitor.on_train_batch_end/utilization.gpu (%)"

AROUND_MIDNIGHT = (
    *(f"11-2026 23:59:5{second}" for second in (6, 7, 8, 9)),
    *(f"12-2026 00:00:0{second}" for second in (0, 1, 2, 3)),
)

SAMPLES = {
    "nvidia-smi": Sample(QUERY),
    "dstat, two GPUs and the stalls": Sample(
        written(
            DSTAT + '"system","gpu0-sim",,,"gpu1-sim",,,"gpu0-sim",,',
            '"time","gpu0-sim:use","gpu0-sim:mem","gpu0-sim:strv","gpu1-sim:use","gpu1-sim:mem",'
            '"gpu1-sim:strv","gpu0-sim:lost","gpu0-sim:main","gpu0-sim:cause"',
            row="02-03 09:00:0{at},{busy}.000,26.0,0.0,55.000,26.0,0.0,3.0,,",
        ),
        began=None, gpus=2,
    ),
    "ClearML, wide": Sample(
        written(
            "timestamp,:monitor:machine/cpu_usage,:monitor:gpu/gpu_0_mem_usage,"
            ":monitor:gpu/gpu_0_utilization",
            row="{epoch},44.5,30.0,{busy}.0",
        )
    ),
    "ClearML, long": Sample(
        written(
            "metric,variant,iter,timestamp,value",
            row=":monitor:machine,cpu_usage,{at},{epoch}000,44.5\n"
            ":monitor:gpu,gpu_0_utilization,{at},{epoch}000,{busy}.0",
        )
    ),
    "Grafana, a legend with labels, for Excel": Sample(
        written(
            "sep=,", f'"Time","{LABELS.format(0)}","{LABELS.format(1)}"',
            row='"2026-03-02 09:00:0{at}","{busy} %","55 %"',
        ),
        gpus=2,
    ),
    "Grafana, labels in a column": Sample(
        written(
            '"Time","__name__","gpu","instance","Value"',
            row='"{epoch}000","DCGM_FI_DEV_GPU_UTIL","0","n1","{busy}"\n'
            '"{epoch}000","DCGM_FI_DEV_GPU_TEMP","0","n1","56"',
        )
    ),
    "Lightning with the GPU in front": Sample(
        written(
            "step,device_id: 0/utilization.gpu (%),device_id: 1/utilization.gpu (%),"
            "device_id: 0/utilization.memory (%),created_at",
            row="{at},{busy}.0,55.0,31.0,{epoch}",
        ),
        gpus=2,
    ),
    "Lightning's metrics.csv, of whose rows few have the GPU": Sample(
        written(METRICS, row="0,{at},0.5,\n0,{at},,{busy}.0\n0,{at},0.4,"), began=None
    ),
    "HWiNFO in cp1252": Sample(
        written(HWINFO, row="2.3.2026,9:00:0{at}.000,12.5,{busy}.0,3.0,56.0,", foot=HWINFO)
    ),
    "a Chinese spreadsheet": Sample(
        written(
            "时间,显卡编号,GPU利用率(%),显存使用率(%),显存使用(MB)",
            row="2026-03-02 09:00:0{at},0,{busy},31,1200",
        )
    ),
    "a German spreadsheet": Sample(
        written(
            "Zeitstempel;GPU-Auslastung [%];CPU-Auslastung [%];Speicher [MiB]",
            row="02.03.2026 09:00:0{at};{busy},0;12,5;1200,5",
        )
    ),
    **{
        f"headings in another language: {heading}": Sample(headed(heading, time=time))
        for time, heading in (
            ("Horodatage", "Taux d'utilisation GPU (%)"), ("Heure", "Utilisation du GPU"),
            ("Fecha y hora", "Uso de GPU (%)"), ("Hora", "Utilización GPU"),
            ("Data/ora", "Utilizzo GPU (%)"), ("Data e hora", "Uso da GPU (%)"),
            ("日時", "GPU使用率(%)"), ("タイムスタンプ", "GPU 負荷 [%]"), ("시간", "GPU 사용률(%)"),
            ("時間", "顯示卡使用率(%)"), ("Время", "Загрузка ГП (%)"),
            ("Tijd", "GPU-belasting (%)"),
            ("Czas", "Użycie GPU (%)"), ("Zaman", "GPU kullanımı (%)"),  # noqa: RUF001
            ("Zeit", "Auslastung GPU"), ("Zeit", "GPU-Last"),
        )
    },
    "gpustat in Chinese": Sample(
        written(row="n1  2026年03月02日 星期一 09时00分0{at}秒  535.86.10\n" + GPUSTAT)
    ),
    "month first, by a midnight": Sample(
        "timestamp, utilization.gpu [%]\n"
        + "".join(
            f"03-{time}, {busy}\n"
            for time, busy in zip(AROUND_MIDNIGHT, BUSY, strict=True)
        ),
        began="2026-03-11T23:59:56",
    ),
    "quoted in Markdown": Sample(
        "We see:\n" + "".join(f"> {line}\n" for line in QUERY.splitlines()), skipped=1
    ),
    "a header one short": Sample(
        written(
            "time,gpu_index,gpu_name,gpu_util_percent,temp_c",
            row="2026-03-02 09:00:0{at},2026/03/02 09:00:0{at}.000, 0, NVIDIA X, {busy}, 42",
        )
    ),
    "rows that end with a separator": Sample(
        written("timestamp,index,gpu_util", row="2026/03/02 09:00:0{at}.000,0,{busy},")
    ),
    "a row for each process, of one GPU": Sample(
        written(
            "timestamp,pid,gpu_util", row="2026-03-02 09:00:0{at}.5,11,{busy}\n"
            "2026-03-02 09:00:0{at}.5,12,{busy}",
        ),
        skipped=8,
    ),
    "headings of two words": Sample(
        written(
            "GPU Monitor - Press Ctrl+C", "Time     GPU%   Mem Used   Mem Total",
            "=====================", row="{at:>5}.0  {busy:>3}.0       1361       8192",
        ),
        began=None, skipped=2,
    ),
}  # fmt: skip


def read(data: bytes) -> tuple[dict[int, list[tuple[float, float | None]]], str | None, int]:
    """Seconds and percents of each GPU, the first time, and the number of skipped lines."""
    with LogText("-", io.BytesIO(data)) as text:
        samples, facts = read_log("".join(text.lines()))
    first_ns = min(one.stamp_ns for one in samples)
    gpus: dict[int, list[tuple[float, float | None]]] = {}
    for one in samples:
        percent = None if one.busy_ratio is None else round(100 * one.busy_ratio, 6)
        gpus.setdefault(one.gpu, []).append(((one.stamp_ns - first_ns) / 1e9, percent))
    return gpus, facts.clock.iso(first_ns), facts.skipped_lines


def expected(sample: Sample) -> dict[int, list[tuple[float, float | None]]]:
    busy: list[tuple[float, ...]] = [BUSY, *[(55.0,) * len(BUSY)] * (sample.gpus - 1)]
    return {gpu: [(at, float(one)) for at, one in enumerate(of)] for gpu, of in enumerate(busy)}


def encoded(name: str, text: str) -> bytes:
    return text.encode("cp1252" if "cp1252" in name else "utf-8")


def separator_in(text: str) -> str:
    return ";" if "Zeitstempel;" in text else ","


SIMPLE_CSVS = [
    name
    for name, sample in SAMPLES.items()
    if not re.search('["|]', sample.text)
    and len({line.count(separator_in(sample.text)) for line in sample.text.splitlines()} - {0}) == 1
]


@pytest.fixture(params=SAMPLES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestAUserLog:
    def test_is_read_with_busy_ratio_and_time_of_each_gpu(self, name: str) -> None:
        sample = SAMPLES[name]

        gpus, began, skipped = read(encoded(name, sample.text))

        assert gpus == expected(sample)
        assert (began or "")[:19] == (sample.began or "")
        assert skipped == sample.skipped

    def test_is_read_the_same_in_any_encoding_and_with_any_line_end(self, name: str) -> None:
        text = SAMPLES[name].text

        for data in (
            encoded(name, text.replace("\n", "\r\n")),
            encoded(name, text.rstrip("\n")),
            text.encode("utf-8-sig"),
            text.encode("utf-16"),
            text.encode("utf-16-le"),
        ):
            assert read(data)[0] == expected(SAMPLES[name])

    @pytest.mark.parametrize("name", SIMPLE_CSVS, indirect=True)
    def test_is_read_the_same_with_every_cell_in_quotes(self, name: str) -> None:
        separator = separator_in(SAMPLES[name].text)
        out = io.StringIO()
        rows = csv.reader(SAMPLES[name].text.splitlines(), delimiter=separator)
        csv.writer(out, delimiter=separator, quoting=csv.QUOTE_ALL).writerows(rows)

        assert read(out.getvalue().encode())[0] == expected(SAMPLES[name])

    @pytest.mark.parametrize(
        ("name", "encoding"),
        [("a Chinese spreadsheet", "gb18030"), ("HWiNFO in cp1252", "latin-1"),
         ("headings in another language: Utilización GPU", "latin-1")],
        indirect=["name"],
    )  # fmt: skip
    def test_is_read_the_same_in_a_legacy_encoding(self, name: str, encoding: str) -> None:
        assert read(SAMPLES[name].text.encode(encoding))[0] == expected(SAMPLES[name])


NO_UTILISATION = {
    "a CPU": "time,cpu_usage,system/cpu_utilization_percentage,cpu0_util",
    "a memory": "time,memory_usage_percent,utilization.memory [%],GPU Memory Usage [%]",
    "memory in Chinese": "时间,显存使用率(%),内存使用率,CPU使用率",
    "engines": "time,GPU Memory Controller Load [%],GPU Bus Load [%],GPU D3D Usage [%]",
    "labels of a temperature": 'time,"DCGM_FI_DEV_GPU_TEMP{gpu=""0""}"',
}
OTHERS = {
    "nvitop": "Mon Mar 02 09:00:00 2026\n| NVITOP 1.3.2    Driver Version: 550.54 |",
    "nvidia-smi pmon": "# gpu   pid  type    sm   mem\n# Idx     #   C/G     %     %\n"
    "    0  4711     C    95    40",
    "tegrastats": "03-02-2026 09:00:00 RAM 2274/6834MB (lfb 27x4MB) CPU [9%] GR3D_FREQ 97% AUX@3C",
    "rocm-smi": "\n=== ROCm System Management Interface ===\nGPU  Temp  AvgPwr  VRAM%  GPU%\n"
    "0    45.0c  38.0W  12%  97%",
    "amd-smi": "GPU  POWER  GPU_T  GFX_CLK  GFX%  MEM%\n  0  95 W  45 C  1700 MHz  97 %  5 %",
    "intel_gpu_top": " Freq MHz      IRQ RC6     Power W             RCS             BCS\n"
    " req  act       /s   %   gpu   pkg       %  se  wa       %\n  300  300  12  97  0.1  8  1  0",
    "powermetrics": "*** Sampled system activity (Mon Mar  2 09:00:00 2026 +0100) (1000.00ms) ***\n"
    "GPU HW active residency:  97.00%",
    "asitop": "E-CPU Usage: 12% @ 1000 MHz\nGPU Usage: 97%",
    "watch": "\x1b[?1049h\x1b[1;24r\x1b[4l\x1b[H\x1b[2JEvery 1.0s: nvidia-smi\x1b[1;50Hnode1: Mon\n"
    "| NVIDIA-SMI 535.86.10 |\x1b[9;60H97%",
    "nvtop": "\x1b[?1049h\x1b[2;1H Device 0 [NVIDIA A100] PCIe GEN 4@16x RX: 0.000 KiB/s",
}


class TestALogWithoutAUtilisation:
    @pytest.mark.parametrize("header", NO_UTILISATION.values(), ids=NO_UTILISATION)
    def test_is_refused_with_its_columns(self, header: str) -> None:
        separator = ";" if ";" in header else ","
        width = len(next(csv.reader([header], delimiter=separator)))
        rows = [separator.join([str(at), *["97"] * (width - 1)]) for at in range(9)]

        with pytest.raises(UnreadableLogError, match=r"no utilisation column among: .*--column"):
            read("\n".join([header, *rows]).encode())

    @pytest.mark.parametrize(
        "heading",
        ["device,r/s,w/s,%util", "interface,rx_mbps,utilization", "%user,%iowait,utilization"],
    )
    def test_is_refused_if_it_may_be_of_a_disk_a_network_or_a_processor(self, heading: str) -> None:
        cells = ",".join("1" * (heading.count(",") - 1)) + ",1,{busy}"
        text = headed(heading, cells.lstrip(","))

        with pytest.raises(UnreadableLogError, match="nothing in the header names a GPU"):
            read(text.encode())

    def test_is_refused_if_it_is_the_total_of_dstat(self) -> None:
        text = DSTAT + '"gpu-tot",,\n"gpu-tot:use","gpu-tot:mem","gpu-tot:strv"\n' + "97,5,0\n" * 9

        with pytest.raises(UnreadableLogError, match=r"gpu-tot.*DSTAT_GPU=all"):
            read(text.encode())


class TestTheOutputOfAnotherTool:
    @pytest.mark.parametrize("tool", OTHERS)
    def test_is_refused_by_its_name_with_what_to_do(self, tool: str) -> None:
        with pytest.raises(UnreadableLogError, match=rf"this is .*\b{tool}\b.*; .*\b(write|log)\b"):
            read((OTHERS[tool] + "\n").encode() * 3)

    def test_is_skipped_below_a_log(self) -> None:
        assert len(read((QUERY + "rocm-smi\n").encode())[0][0]) == len(BUSY)
