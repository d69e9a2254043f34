"""NVMe for any transport: commands, completions, SGLs, and the structures that they carry.

- :mod:`.codes`: opcodes, status codes and other constants of the standards;
- :mod:`.command`: submission and completion queue entries, SGL descriptors;
- :mod:`.fabrics`, :mod:`.admin`, :mod:`.io`: functions that build the commands of each set;
- :mod:`.structures`: the data of Identify, Get Log Page and Reservation Report.

Sections are those of NVM Express Base 2.3 and NVM Command Set 1.2 ("NVM").
"""
