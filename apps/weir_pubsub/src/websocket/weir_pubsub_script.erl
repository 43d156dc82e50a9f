%% @private
%% @doc The client for browsers: `/weir-push.js', an ES module, and its types.
-module(weir_pubsub_script).
-behaviour(weir_http_direct).

-export([routes/0]).
-export([handle/2]).

%% @doc Returns the routes. Pages of all origins may load the module.
-spec routes() -> [weir_http_routes:route()].
routes() ->
    Options = #{methods => [<<"GET">>], cors => #{origins => any}},
    [{"/" ++ Name, ?MODULE, {Name, Type}, Options} || {Name, Type} <- [
        {"weir-push.js", <<"text/javascript; charset=utf-8">>}, {"weir-push.d.ts", <<"text/plain; charset=utf-8">>}
    ]].

-spec handle(weir_http_request:request(), {file:filename(), binary()}) -> weir_http_direct:result().
handle(_Request, {Name, Type}) ->
    {file, filename:join(code:priv_dir(weir_pubsub), Name), [
        {<<"content-type">>, Type}, {<<"cache-control">>, <<"no-cache">>}
    ]}.
