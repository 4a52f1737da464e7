"""Where records come from. A data set is one YAML file in conf/dataset and one
loader here; a loader may serve several data sets.

| file | what it is |
|---|---|
| records.py | the contract: what a loader returns |
| source.py | what a loader says without loading: files, checksums, how to get it |
| breast_cancer, digits, bundled | tables that come with scikit-learn |
| vision, image_sets, image_files, image_download | MNIST, Fashion-MNIST, CIFAR, EMNIST |
| leaf, femnist, shakespeare, reddit | LEAF's federations |
| libsvm.py | files in LIBSVM's format |
| csv_table, npz, own_file | a table or numpy arrays of one's own |
| ixi.py, messidor.py | medical images |
| synthetic.py | generated federations |
| prepare.py | from raw records to what clients hold |
| standardise, published, features, feature_cache, augment | its steps |
| download.py, folder.py, torchvision_import.py | files on this machine |
| pickled.py | pickles that are read and not run |
| files.py | what a file must be before a loader reads it |
| contents.py, indices.py | a hash of what was read; which record went to whom |
| overview.py, verify.py, show.py | what `data list`, `data verify` and `data show` say |
"""
