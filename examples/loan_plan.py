# %% [markdown]
# # A loan plan
#
# A loan application was rejected. What should the applicant change, so that it is likely to be granted even if the
# changes are imperfect? The table is the German credit data with readable categories, the classifier a scikit-learn
# pipeline.

# %%
from importlib.util import find_spec

from rose_carla import RoseMul, datasets, models, plots
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

# %% [markdown]
# The table in original units, and eight of its columns. Some features are immutable, among them the current account:
# people without one are often granted a loan here, so a plan would recommend to close it.

# %%
german = datasets.load("german", form="typed")
table = german.inverse_transform(german.df)
data = datasets.from_frame(
    table,
    "credit-risk",
    name="loans",
    continuous=["credit-amount", "duration", "installment-rate", "age"],
    categorical=["savings", "other-debtors", "checking-account", "employment-since"],
    immutables=["age", "checking-account", "employment-since"],
)

# %% [markdown]
# The pipeline takes encoded rows: numbers between 0 and 1, one column per category.

# %%
rows, outcomes = data.df_train.drop(columns=data.target), data.df_train[data.target]
pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000)).fit(rows, outcomes)
print(f"Accuracy on the test split: {pipeline.score(data.df_test[rows.columns], data.df_test[data.target]):.2f}")
model = models.wrap(pipeline, data)

# %% [markdown]
# ROSE-mul trains a policy once per classifier, from which it plans. The amount may only decrease. Of the rejected
# people, take the one with the largest amount.

# %%
method = RoseMul(model, {"monotone": {"credit-amount": "decrease"}, "progress": False})
person = models.negative_instances(model).nlargest(1, "credit-amount")
plan = method.plan(person)[0]
print(data.inverse_transform(person)[data.raw_features].iloc[0].to_string())
print(plan)

# %% [markdown]
# Success is the share of 400 noisy executions that the classifier accepts, for a person who stops after that step.
# Suppose the duration was reduced by only half of the planned change. What next? One step for people who come back and
# ask again after it, until they are accepted.

# %%
landed = data.inverse_transform(person)
end = data.inverse_transform(person.assign(**dict(zip(model.feature_input_order, plan.counterfactual, strict=True))))
landed["duration"] = (landed["duration"] + end["duration"]) / 2
print("Next:", method.next_action(data.transform(landed)))

# %% [markdown]
# The plan as a chart, where matplotlib is installed (extra `plots`).

# %%
if find_spec("matplotlib"):
    plots.plan_chart(plan).figure.savefig("loan_plan.png", bbox_inches="tight")
    print("Chart: loan_plan.png")
