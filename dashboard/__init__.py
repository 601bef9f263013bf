"""The dashboard: a Streamlit app and a notebook widget over the store that producers write."""
