%% @private
%% @doc The access log. A line for each session when it ends, as HAProxy's `option tcplog', or a JSON object.
-module(weir_proxy_log).

-export([session/3]).

%% @doc A session has ended.
-spec session(tuple(), term(), term()) -> ok.
session(_Session, _Result, _Statistics) -> ok.
