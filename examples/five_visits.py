# %% [markdown]
# # Coming back
#
# People implement advice imprecisely. A person whose loan was refused asks what to do, does it as well as they can,
# looks where they landed and asks again, until the loan is granted. The table is the German credit data with readable
# categories, the classifier a small network.

# %%
import numpy as np
import pandas as pd
from rose_carla import RoseMul, datasets, models
from rose_carla.noise import Density, PlausibleNoise, execute

# %% [markdown]
# Only the terms of the loan may change: the amount, the months, and the rate of an instalment.

# %%
german = datasets.load("german", form="typed")
table = german.inverse_transform(german.df)
terms = ["credit-amount", "duration", "installment-rate"]
fixed = [column for column in table if column not in (*terms, "credit-risk")]
data = datasets.from_frame(table, "credit-risk", name="loans", immutables=fixed)
model = models.train(data, "ann", settings=models.paper_settings("ann", "german"))

# %% [markdown]
# ROSE-mul plans for accumulated noise; the policy for people who come back is trained when it is first needed.

# %%
method = RoseMul(model, {"progress": False})
people = models.negative_instances(model).nlargest(10, "credit-amount")
person = people.loc[[771]]
print(method.plan(person, revisits=5)[0])

# %% [markdown]
# Five visits. Each answer is one step; noise decides where the person lands, and the next answer starts from there.
# Noise moves all features a little, also immutable ones; a person who lands between two categories names the nearest.

# %%
noise, s = PlausibleNoise(Density.from_model(model)), method.settings
rng, here, rows = np.random.default_rng(1), person, []
for visit in range(1, 6):
    answer = method.next_steps(here)[0]
    if not answer.steps:
        break
    action, start = answer.actions, here[model.feature_input_order].to_numpy()
    landed = execute(start, [action], noise, s.unit_variance, s.action_unit, 1, rng)[0]
    here = datasets.nearest_valid(data, person.assign(**dict(zip(model.feature_input_order, landed.T, strict=True))))
    now = data.inverse_transform(here)[terms].round(1).iloc[0]
    accepted = models.favourable(model)(here[model.feature_input_order].to_numpy())[0]
    chance = f"{answer.success.probability:.0%}"
    rows.append({"visit": visit, "answer": str(answer.steps[0]), "chance": chance, **now, "accepted": accepted})
print(pd.DataFrame(rows).to_string(index=False))

# %% [markdown]
# The same a hundred times, for ten people: how many get the loan, what it costs, and how often they come back.

# %%
followed = method.follow(people, n_tries=100)
print(followed)
columns = ["person", "success", "cost_mean", "decisions_mean", "decisions_q90"]
print(followed.to_frame()[columns].round(2).to_string(index=False))
