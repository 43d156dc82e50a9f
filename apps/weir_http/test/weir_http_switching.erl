%% What a connection may become in the tests of the seam: a map of funs, one for each callback that a case is about.
-module(weir_http_switching).
-behaviour(weir_http_direct).
-behaviour(weir_http_switched).

-export([handle/2]).
-export([enter/4, data/4, info/4, writable/3, tick/3, gone/3]).

handle(_Request, Funs) -> {switch, ?MODULE, Funs}.

enter({switch, ?MODULE, Funs}, Request, _Wanted, _Http) ->
    Enter = maps:get(enter, Funs, fun(_) -> <<"HTTP/1.1 101 Other\r\n\r\n">> end),
    {switched, ?MODULE, Enter(Request), Funs}.

data(Socket, Bytes, Funs, _Key) -> call(data, [Socket, Bytes], Funs).

info(Socket, Message, Funs, _Key) -> call(info, [Socket, Message], Funs).

writable(Socket, Funs, _Key) -> call(writable, [Socket], Funs).

tick(Socket, Funs, _Key) -> call(tick, [Socket], Funs).

gone(Reason, Funs, _Key) ->
    _ = call(gone, [Reason], Funs),
    ok.

call(Name, Arguments, Funs) ->
    case Funs of
        #{Name := Fun} -> apply(Fun, Arguments ++ [Funs]);
        #{} -> {ok, Funs}
    end.
