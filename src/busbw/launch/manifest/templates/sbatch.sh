#!/bin/bash
#SBATCH --job-name=@{name}
#SBATCH --nodes=@{hosts}
#SBATCH --ntasks-per-node=@{ranks_per_host}
#SBATCH --gpus-per-node=@{gpus_per_host}
#SBATCH --partition=@{partition}
#SBATCH --account=@{account}
#SBATCH --time=@{time}
#SBATCH --output=@{output}
#SBATCH --exclusive
#SBATCH --mem=0

exec @{command}
