%% @private
%% @doc Paths of unix sockets during a take-over. Who listens on a path takes its name from the one before; if the take-over fails that
%% one needs it again. Meanwhile it has another name beside it.
-module(weir_proxy_paths).

-include_lib("kernel/include/file.hrl").

-export([keep/1]).
-export([give_back/1]).
-export([forget/1]).

%% @doc Before the paths are listened on.
-spec keep([binary()]) -> ok.
keep(Paths) ->
    lists:foreach(
        fun(Path) ->
            %% That of a take-over that was killed.
            ok = forget([Path]),
            _ = file:make_link(Path, before(Path))
        end,
        [Path || Path <- Paths, is_socket(Path)]
    ).

%% @doc The take-over has failed. Who connects from here on comes to the one before.
-spec give_back([binary()]) -> ok.
give_back(Paths) ->
    %% There is none where nobody listened.
    lists:foreach(fun(Path) -> _ = file:rename(before(Path), Path) end, Paths).

%% @doc The take-over has succeeded.
-spec forget([binary()]) -> ok.
forget(Paths) ->
    lists:foreach(fun(Path) -> is_socket(before(Path)) andalso file:delete(before(Path)) end, Paths).

before(Path) -> <<Path/binary, ".before">>.

is_socket(Path) ->
    case file:read_link_info(Path) of
        {ok, #file_info{type = other}} -> true;
        _ -> false
    end.
