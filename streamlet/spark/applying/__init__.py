"""A topology's bolts on DataFrames: ``streamlet.spark.apply``.

``model.dataframe_plan`` decides the stages. ``chain`` runs one stage's bolts on plain columns, ``applied_bolt`` one
bolt, ``key_state`` keeps a bolt's attributes by key; none of these knows Spark. ``stage_columns`` speaks Arrow,
``operators`` is what Spark calls on executors, ``apply`` puts the DataFrames together.
"""
