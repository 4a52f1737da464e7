"""From YAML files and overrides to typed settings. No torch.

| file | what it is |
|---|---|
| compose.py, template.py, hydra_loader.py | Hydra's part: overrides in, composed configs out |
| records.py | a user's YAML file as a dataclass |
| user_keys.py | what a data set's file of a user may leave out |
| unknown.py, complete.py | keys and choices that there are not, or that are half typed |
| words.py | keys and values as words of the command line |
| settings.py | the typed settings of a run |
| validate.py, typed.py, rounds.py | from a composed config to them |
| identity.py | what a run's id is made of |
| ranges.py, group_keys.py | the range of each setting; of the keys that files of a group share |
| refusals.py, nominal.py | what the settings alone show to be impossible |
| fits.py | whether data set, partition and model go together |
| targets.py, call.py | what a `_target_` names, and its call |
| catalogue.py, tracker_names.py, measures.py | what there is to choose from |
"""
