"""What jobs/report.py is made of: runs (run), pictures (figures, gantt), sweeps (sweep), the page (page)."""
