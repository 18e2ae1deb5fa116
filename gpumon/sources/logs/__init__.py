"""Logs that other tools wrote: which format each has, who reads it, and the lines it is made of.

One file in ``formats`` is one format. Here is what their readers share: ``gpu_log`` what all of
them do alike, ``wide_table`` what the wide CSV and the wide JSON do, ``prometheus_metrics``
the names of exporters. ``table`` reads columns, headings and cells, ``stamps`` the time of rows,
and puts them in its order.

Everywhere here ``lines`` are those of a log, or pieces of them; ``name`` is what it is called in
sentences, ``options`` what the user said about it, and ``number`` that of a line, from 1.
"""
