"""The relevant columns, and the table of names for them in many languages."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.sources.logs.stamps.stamp_parsers import UNITS_NS
from gpumon.sources.logs.table.cell_values import BYTES_OF_UNIT, MIB


class Column(str, Enum):
    """The relevant columns, as nvidia-smi calls them."""

    UTILIZATION = "utilization.gpu"
    STAMP = "timestamp"
    DATE = "date"
    INDEX = "index"
    UUID = "uuid"
    BUS_ID = "pci.bus_id"
    SERIAL = "serial"
    NAME = "name"
    HOST = "host"
    MEMORY_USED = "memory.used"
    MEMORY_TOTAL = "memory.total"
    MIG = "mig.mode.current"


IDENTIFYING: Final = (Column.UUID, Column.BUS_ID, Column.INDEX, Column.SERIAL)
"""Columns that identify a GPU, most reliable first."""


class HeadingGpu(NamedTuple):
    """A GPU as a heading names it.

    Attributes:
        owner: The run or node it belongs to; ``""``: unknown.
        number: Its index there; ``None``: unknown.
    """

    owner: str
    number: int | None
    mig_index: int | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class Heading:
    """The meaning of one heading.

    Attributes:
        gpu: The GPU, if there is a column for each GPU.
        rank: Of several columns with the same content, the one with the lowest rank is read.
        unit: Bytes or nanoseconds for a 1.
        is_percent: Of a utilisation; ``None``: the values must show it.
        is_optional: Whether other rows leave the cell blank.
        is_worded: Whether it is not a fixed name of a tool, so that the values may contradict it.
    """

    column: Column
    gpu: HeadingGpu | None = None
    rank: int = 0
    unit: int = 1
    is_percent: bool | None = True
    is_optional: bool = False
    is_worded: bool = False


class WordKind(Enum):
    """Kinds of words in headings."""

    GPU, PERCENT, RATIO = "gpu", "percent", "ratio"
    SURELY_BUSY, BUSY, WEAKLY_BUSY = "surely busy", "busy", "busy, of a GPU only"
    MEMORY, USED, TOTAL, BYTES = "memory", "used", "total", "unit of memory"
    STAMP, TIME, SINCE, DAY, WITH_TIME = "stamp", "time", "since", "day", "with a time"
    SECONDS = "unit of time"
    INDEX, ID, NAME, UUID, BUS, SERIAL = "index", "id", "name", "uuid", "bus", "serial"
    HOST, MIG, CORE, FILLER = "host", "mig", "core", "filler"


_NAMES: Final[dict[WordKind, str]] = {
    WordKind.GPU: (
        "gpu cuda device card 显卡 顯卡 顯示卡 图形处理器 grafikkarte grafikkarten "
        "grafikprozessor tarjeta grafica видеокарта видеокарты гп"
    ),
    WordKind.SURELY_BUSY: (
        "util utilization utilisation 利用率 使用率 占用率 负载 負載 稼働率 負荷率 負荷 사용률 "
        "이용률 사용율 점유율 부하 auslastung grafikkartenauslastung kernlast utilizacion "
        "utilizacao utilizzo gebruik belasting bezetting anvandning belastning utnyttjande "
        "forbrug bruk uzycie obciazenie wykorzystanie загрузка использование нагрузка kullanim "
        "kullanimi"
    ),
    WordKind.BUSY: "usage load busy activity sm",
    WordKind.WEAKLY_BUSY: "use charge taux occupation uso carga carico last",
    WordKind.PERCENT: (
        "percent percentage pct % prozent pourcentage pourcent porcentaje porcentagem percentuale"
    ),
    WordKind.RATIO: "ratio fraction share",
    WordKind.MEMORY: (
        "memory mem vram fb framebuffer 显存 顯存 显卡内存 显示内存 顯示記憶體 メモリ メモリー "
        "ビデオメモリ 메모리 speicher grafikspeicher videospeicher memoire memoria geheugen "
        "minne hukommelse pamiec память памяти видеопамять видеопамяти bellek"
    ),
    WordKind.USED: (
        "used usage use allocated 使用量 已使用 已用 使用 占用 用量 사용량 사용 belegt belegung "
        "verwendet genutzt benutzt utilisee utilise usada usado utilizada utilizzata usata uso "
        "utilizzo gebruikt anvant brugt brukt uzyta zajeta используется использовано занято "
        "kullanilan"
    ),
    WordKind.TOTAL: (
        "total 总量 總量 总计 总共 总 合計 総量 容量 전체 총량 gesamt insgesamt totale "
        "calkowita всего"
    ),
    WordKind.STAMP: (
        "timestamp datetime ts 时间戳 時間戳 时间 時間 タイムスタンプ 日時 時刻 타임스탬프 시간 "
        "시각 일시 zeitstempel zeitpunkt horodatage tijdstempel tidsstampel tidsstempel"
    ),
    WordKind.TIME: (
        "time t clock when second seconds zeit uhrzeit sekunden heure temps secondes hora "
        "tiempo tempo ora segundos secondi instante tijd tijdstip tid tidspunkt tidpunkt czas "
        "godzina время zaman saat"
    ),
    WordKind.SINCE: "elapsed runtime uptime laufzeit vergangene verstrichene ecoule",
    WordKind.WITH_TIME: (
        "relative since start run unix epoch wall local stamp process utc gmt created logged "
        "recorded at marca marcatura temporale"
    ),
    WordKind.DAY: "date day 日期 日付 날짜 일자 datum fecha data giorno dato дата tarih",
    WordKind.INDEX: "index",
    WordKind.ID: (
        "id idx number no nr 编号 編號 序号 序號 索引 号 番号 번호 nummer numero indice номер numer"
    ),
    WordKind.NAME: (
        "name product model 名称 名稱 型号 型號 名前 이름 nom nombre nome naam namn navn "
        "название nazwa"
    ),
    WordKind.UUID: "uuid",
    WordKind.BUS: "pci bus id",
    WordKind.SERIAL: "serial number",
    WordKind.HOST: (
        "host hostname node nodename server machine instance rechner hote nodo maquina "
        "主机 主机名 主機 节点 ホスト 호스트 узел хост"
    ),
    WordKind.MIG: "mig mode",
    WordKind.CORE: "core kern",
    WordKind.FILLER: (
        "nvidia nvml smi rate volatile current の the of in de du des da d l la le el del della "
        "der den di um van von na y e et und i и"
    ),
}
"""A heading of these words alone, in any order, is known. A new language adds its words here."""


def folded(text: str) -> str:
    """Return a text in lower case, without accents, in ASCII widths.

    >>> folded("Mémoire GPU")
    'memoire gpu'
    """
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text.casefold().replace("\u0131", "i"))
    return "".join(sign for sign in apart if not unicodedata.combining(sign))


BYTES_OF_NAME: Final = MappingProxyType({**BYTES_OF_UNIT, "megabytes": MIB, "gigabytes": MIB << 10})
"""Units of memory in headings."""


def _kinds() -> dict[str, frozenset[WordKind]]:
    named = [(word, kind) for kind, words in _NAMES.items() for word in folded(words).split()]
    named += [(word, WordKind.SECONDS) for word in UNITS_NS]
    named += [(word, WordKind.BYTES) for word in BYTES_OF_NAME]
    return {word: frozenset(kind for one, kind in named if one == word) for word, _ in named}


KINDS: Final = MappingProxyType(_kinds())
"""Kinds of each known word, by its ``folded`` form."""
