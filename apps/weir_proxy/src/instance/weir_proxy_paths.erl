%% @private
%% @doc Keeps the old sockets at unix paths during a take-over. A new listener replaces the socket file of the old one,
%% which needs it back if the take-over fails. Until then a hard link beside the path keeps the old socket.
-module(weir_proxy_paths).

-include_lib("kernel/include/file.hrl").

-export([keep/1]).
-export([give_back/1]).
-export([forget/1]).

%% @doc Links the old sockets. Called before the new listeners are opened.
-spec keep([binary()]) -> ok.
keep(Paths) ->
    lists:foreach(
        fun(Path) ->
            %% Left over from a take-over that was killed.
            ok = forget([Path]),
            _ = file:make_link(Path, before(Path))
        end,
        [Path || Path <- Paths, is_socket(Path)]
    ).

%% @doc Restores the old sockets after a take-over has failed. New clients reach the old proxy again.
-spec give_back([binary()]) -> ok.
give_back(Paths) ->
    %% Fails where no socket was before.
    lists:foreach(fun(Path) -> _ = file:rename(before(Path), Path) end, Paths).

%% @doc Removes the links after a take-over has succeeded.
-spec forget([binary()]) -> ok.
forget(Paths) ->
    lists:foreach(fun(Path) -> is_socket(before(Path)) andalso file:delete(before(Path)) end, Paths).

before(Path) -> <<Path/binary, ".before">>.

is_socket(Path) ->
    case file:read_link_info(Path) of
        {ok, #file_info{type = other}} -> true;
        _ -> false
    end.
