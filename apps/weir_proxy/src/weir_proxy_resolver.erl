%% @private
%% @doc Resolves a name, which may take long, in a process of its own.
-module(weir_proxy_resolver).

-export([resolve/1]).

%% @doc Sends `{weir_proxy_resolved, Name, Address}' to the caller when the name has an address. An answer that fails is none: the
%% address that was there before stays.
-spec resolve(binary()) -> pid().
resolve(Name) ->
    Caller = self(),
    spawn_link(fun() ->
        case inet:getaddr(binary_to_list(Name), inet) of
            {ok, Address} ->
                Caller ! {weir_proxy_resolved, Name, Address};
            {error, _} ->
                case inet:getaddr(binary_to_list(Name), inet6) of
                    {ok, Address} -> Caller ! {weir_proxy_resolved, Name, Address};
                    {error, _} -> ok
                end
        end
    end).
